"""The Flax room: the T5 network, its cache, its layouts, its place on a mesh, its enlargement."""

from specdec_jax.t5.config import PRESETS as PRESETS
from specdec_jax.t5.config import T5Config as T5Config
from specdec_jax.t5.config import preset as preset
from specdec_jax.t5.expand import expand as expand
from specdec_jax.t5.model import T5 as T5
from specdec_jax.t5.model import prepare as prepare
from specdec_jax.t5.model import t5 as t5
from specdec_jax.t5.network import Transformer as Transformer
from specdec_jax.t5.partitioning import MeshedT5 as MeshedT5
from specdec_jax.t5.partitioning import make_mesh as make_mesh
from specdec_jax.t5.partitioning import shard as shard
from specdec_jax.t5.partitioning import shard_rows as shard_rows
