"""The TPUs that can be compiled for, and what one chip of each can do."""

from __future__ import annotations

import importlib.util
import os
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from specdec_jax.bench.devices import DEVICES
from specdec_jax.errors import SpecdecError
from specdec_jax.t5.partitioning import DATA, MODEL

EXTRA = "aot"
LAYER_SECONDS = DEVICES["tpu-v4"].layer_seconds or 0.0
"""Per layer of a decoder call, whatever its size: 16 microseconds, see `bench.devices`. It gives
the paper's c on TPU v4; that other generations take as long is an assumption."""


class Chip(NamedTuple):
    """One chip; from docs.cloud.google.com/tpu/docs/v4 and its siblings.

    Attributes:
        memory: bytes of HBM.
        bandwidth: of HBM, bytes per second.
        flops: bfloat16 operations per second, peak.
        options: what libtpu needs to know to make one device of one chip.
    """

    memory: int
    bandwidth: float
    flops: float
    options: dict[str, Any]


_GIB = 2**30
# The two cores of a v4 chip work as one, as they do by default on a TPU VM ("megacore").
CHIPS = {
    "v4": Chip(32 * _GIB, DEVICES["tpu-v4"].bandwidth, 275e12, {"chip_config_name": "megacore"}),
    "v5e": Chip(16 * _GIB, DEVICES["tpu-v5e"].bandwidth, 197e12, {}),
    "v5p": Chip(95 * _GIB, DEVICES["tpu-v5p"].bandwidth, 459e12, {}),
    "v6e": Chip(32 * _GIB, DEVICES["tpu-v6e"].bandwidth, 918e12, {}),
}
TOPOLOGIES = {
    **{f"v4:{shape}": "v4" for shape in ("1x1x1", "2x2x1")},
    **{f"v5e:{shape}": "v5e" for shape in ("1x1", "2x2", "2x4")},
    **{f"v5p:{shape}": "v5p" for shape in ("1x1x1", "2x2x1")},
    **{f"v6e:{shape}": "v6e" for shape in ("1x1", "2x2")},
}
"""Name -> kind of its chips. The numbers multiply to the chips; one core or megacore each."""


class Topology(NamedTuple):
    """A slice of a TPU pod.

    Attributes:
        name: a key of `TOPOLOGIES`.
        chip: of which there are
        chips: many.
    """

    name: str
    chip: Chip
    chips: int


def topology(name: str) -> Topology:
    """Return a topology by name; needs no libtpu.

    Raises:
        SpecdecError: for a name that is not listed.

    Example:
        >>> topology("v5e:2x4").chips
        8
    """
    if name not in TOPOLOGIES:
        raise SpecdecError(f"No topology is called {name!r}; there are {', '.join(TOPOLOGIES)}.")
    shape = name.partition(":")[2].split("x")
    return Topology(name, CHIPS[TOPOLOGIES[name]], int(np.prod([int(size) for size in shape])))


def require_libtpu() -> None:
    """Refuse early where the compiler is missing.

    Raises:
        SpecdecError: when libtpu, which is the compiler, is not installed.
    """
    if importlib.util.find_spec("libtpu") is None:
        raise SpecdecError(
            "libtpu, the compiler for TPUs, is not installed (no TPU is needed, but the compiler "
            f"is): pip install 'specdec-jax[{EXTRA}]'."
        )


def make_mesh(wanted: Topology) -> Mesh:
    """Return a mesh of devices that exist for the compiler alone: 1 x chips (data x model).

    The process is kept to its CPU: with libtpu at hand JAX would look for a TPU, and wait for it.

    Raises:
        SpecdecError: when libtpu is not installed or does not know the topology.
    """
    require_libtpu()
    from jax.experimental import topologies

    # There is no TPU: nothing to ask a metadata server, nor to share with another process.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    jax.config.update("jax_platforms", "cpu")
    options = dict(wanted.chip.options)
    if wanted.chips == 1:
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=wanted.name, **options)
    except jax.errors.JaxRuntimeError as error:
        raise SpecdecError(
            f"libtpu makes no topology {wanted.name} ({error}): install the extra {EXTRA}, whose "
            "version does."
        ) from error
    return Mesh(np.asarray(found.devices).reshape(1, wanted.chips), (DATA, MODEL))
