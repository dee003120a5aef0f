"""The Flax room: the T5 network, its cache, its layouts, its place on a mesh, its enlargement."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from specdec_jax.t5.config import PRESETS as PRESETS
from specdec_jax.t5.config import T5Config as T5Config
from specdec_jax.t5.config import preset as preset

if TYPE_CHECKING:
    from specdec_jax.t5.model import T5 as T5
    from specdec_jax.t5.model import prepare as prepare
    from specdec_jax.t5.model import t5 as t5
    from specdec_jax.t5.network import Transformer as Transformer
    from specdec_jax.t5.partitioning import MeshedT5 as MeshedT5
    from specdec_jax.t5.partitioning import make_mesh as make_mesh
    from specdec_jax.t5.partitioning import shard as shard
    from specdec_jax.t5.partitioning import shard_rows as shard_rows

_HOMES = {
    "model": ("T5", "prepare", "t5"),
    "network": ("Transformer",),
    "partitioning": ("MeshedT5", "make_mesh", "shard", "shard_rows"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what needs Flax when it is asked for; sizes alone do without."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
