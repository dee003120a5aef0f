"""Trees of T5X's other networks, brought into the names and shapes of its plain one.

``scalable_t5`` may stack the layers of a stack along one axis (for ``nn.scan``), keeps heads apart
in its kernels, and gives every layer its own relative biases.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from specdec_jax.checkpoints.tensors import Tensor, Tensors
from specdec_jax.errors import SpecdecError

_STACKS = ("encoder", "decoder")
_BIAS = "relpos_bias/rel_embedding"


def canonical(tensors: Tensors, *, where: Path) -> tuple[dict[str, Tensor], str]:
    """Return tensors in the plain network's form, and what was done to them, in words.

    Names of one stacked array follow one another, so that a reader in the mapping's order reads
    it once and holds one at a time.

    Raises:
        SpecdecError: layers differ in their relative biases.
    """
    done = []
    found = dict(tensors)
    if any(f"{s}/{s}/" in name for s in _STACKS for name in found):
        found = _unroll(found)
        done.append("scanned layers")
    joined = {name: _join_heads(name, tensor) for name, tensor in found.items()}
    if any(joined[name].shape != found[name].shape for name in found):
        done.append("heads apart")
    for stack in _STACKS:
        if _share_bias(joined, stack, where=where):
            done.append(f"{stack} biases in every layer, all equal")
    return joined, ", ".join(done)


class _LastRead:
    """Remembers the one array that was read last, of all that share this object."""

    def __init__(self):
        self._name = ""
        self._array = np.zeros(0)

    def get(self, name: str, read: Callable[[], np.ndarray]) -> np.ndarray:
        if self._name != name:
            self._name, self._array = "", np.zeros(0)  # freed before the next one is read
            self._array = read()
            self._name = name
        return self._array


def _unroll(tensors: Tensors) -> dict[str, Tensor]:
    last = _LastRead()
    flat: dict[str, Tensor] = {}
    width = tensors["token_embedder/embedding"].shape[-1]
    for name, tensor in tensors.items():
        stack = name.split("/")[0]
        prefix = f"{stack}/{stack}/"
        if stack not in _STACKS or not name.startswith(prefix):
            flat[name] = tensor
            continue
        rest = name.removeprefix(prefix)
        norm = tensors.get(f"{prefix}pre_mlp_layer_norm/scale")
        # T5X stacks along axis 1 unless its `param_scan_axis` says 0; a norm's width tells.
        axis = 1 if norm is None or norm.shape[0] == width else 0
        shape = tensor.shape[:axis] + tensor.shape[axis + 1 :]
        for i in range(tensor.shape[axis]):
            read = functools.partial(_slice, last, name, tensor, i, axis)
            flat[f"{stack}/layers_{i}/{rest}"] = Tensor(shape, tensor.dtype, read)
    return flat


def _slice(last: _LastRead, name: str, tensor: Tensor, i: int, axis: int) -> np.ndarray:
    # A copy: a view would keep the whole stack alive.
    return np.array(np.take(last.get(name, tensor.read), i, axis=axis))


def _join_heads(name: str, tensor: Tensor) -> Tensor:
    if len(tensor.shape) != 3 or not name.endswith("/kernel"):
        return tensor
    a, b, c = tensor.shape
    shape = (a * b, c) if name.endswith("/out/kernel") else (a, b * c)
    return tensor.map(lambda x: x.reshape(shape), shape)


def _share_bias(tensors: dict[str, Tensor], stack: str, *, where: Path) -> bool:
    names = sorted(
        (n for n in tensors if n.startswith(f"{stack}/layers_") and n.endswith(_BIAS)),
        key=lambda n: int(n.split("/")[1].removeprefix("layers_")),
    )
    if not names:
        return False
    first = tensors[names[0]].read()
    different = [n for n in names[1:] if not np.array_equal(tensors[n].read(), first)]
    if different:
        raise SpecdecError(
            f"{where}: {len(different)} of the {len(names)} {stack} layers have relative biases of "
            f"their own ({different[0]} differs from {names[0]}), as in umT5 and in a scalable_t5 "
            "that was trained from scratch; this network has one table for all layers of a stack."
        )
    for name in names:
        del tensors[name]
    tensors[f"{stack}/{_BIAS}"] = Tensor.of(first)
    return True
