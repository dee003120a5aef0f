"""Trees of T5X's other networks, brought into the names and shapes of its plain one.

``scalable_t5`` may stack the layers of a stack along one axis (for ``nn.scan``), keeps heads apart
in its kernels, and gives every layer its own relative biases, as umT5 has them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from specdec_jax.checkpoints.tensors import Tensor, Tensors
from specdec_jax.t5.config import T5Config

_STACKS = ("encoder", "decoder")
_BIAS = "relpos_bias/rel_embedding"


def canonical(tensors: Tensors) -> tuple[dict[str, Tensor], str]:
    """Return tensors in the plain network's form, and what was done to them, in words.

    Names of one stacked array follow one another, so that a reader in the mapping's order reads
    it once and holds one at a time. Where every layer has biases of its own and all of a stack are
    equal, they become the one table of the stack: the same function, and the plain form.

    Raises:
        SpecdecError: a table of relative biases cannot be read.
    """
    done = []
    found = dict(tensors)
    if any(f"{s}/{s}/" in name for s in _STACKS for name in found):
        found = _unroll(found)
        done.append("scanned layers")
    joined = {name: _join_heads(name, tensor) for name, tensor in found.items()}
    if any(joined[name].shape != found[name].shape for name in found):
        done.append("heads apart")
    own = {stack: _own_biases(joined, stack) for stack in _STACKS}
    if all(_equal([joined[name] for name in names]) for names in own.values()):
        for stack, names in own.items():
            if names:
                joined[f"{stack}/{_BIAS}"] = joined[names[0]]
                done.append(f"{stack} biases in every layer, all equal")
            for name in names:
                del joined[name]
    return joined, ", ".join(done)


def for_t5x(tensors: Tensors, config: T5Config) -> Tensors:
    """Return tensors as T5X's network of this form has them.

    That is the plain one, which is ours; but where each layer has relative biases of its own it is
    ``scalable_t5`` without a scan, whose attention kernels keep heads apart.
    """
    if not config.relative_bias_per_layer:
        return tensors
    return {name: _part_heads(name, tensor, config) for name, tensor in tensors.items()}


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


def _part_heads(name: str, tensor: Tensor, config: T5Config) -> Tensor:
    if "attention/" not in name:
        return tensor
    apart = (config.num_heads, config.head_dim)
    out = name.endswith("/out/kernel")
    shape = (*apart, tensor.shape[1]) if out else (tensor.shape[0], *apart)
    return tensor.map(lambda x: x.reshape(shape), shape)


def _own_biases(tensors: Tensors, stack: str) -> list[str]:
    names = [n for n in tensors if n.startswith(f"{stack}/layers_") and n.endswith(_BIAS)]
    return sorted(names, key=lambda n: int(n.split("/")[1].removeprefix("layers_")))


def _equal(tables: list[Tensor]) -> bool:
    """Return whether all tables hold the same numbers, which only reading them tells."""
    arrays = [table.read() for table in tables]
    return all(np.array_equal(array, arrays[0]) for array in arrays[1:])
