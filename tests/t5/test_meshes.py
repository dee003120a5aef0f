"""On eight devices of a host: every mesh gives the tokens of one device, sampled ones too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from specdec_jax.errors import SpecdecError
from specdec_jax.t5 import partitioning, preset

HERE = Path(__file__).parent

# In a process of its own: the number of devices is fixed when JAX starts.
PROGRAM = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from small_t5s import small
from specdec_jax.decoding import Options, request, speculative
from specdec_jax.drafts import ModelDraft
from specdec_jax.sampling import sampling
from specdec_jax.t5 import partitioning

assert jax.device_count() == 8
sizes = dict(num_heads=8, head_dim=8, vocab_size=64, mlp_dim=32, num_decoder_layers=1)
target = small("1.1", "token_major", **sizes)
# Three heads fit no mesh: this one is replicated.
draft = small("1.1", "token_major", vocab_size=64, num_decoder_layers=1)
rows, most = 8, 10
source = jnp.asarray(np.random.default_rng(0).integers(2, 60, (rows, 6)), jnp.int32)
settings = sampling(rows, temperature=[0.0, 1.0] * 4)
asked = request(rows, key=jax.random.key(0), max_tokens=most, settings=settings)
options = Options(max_tokens=most, gamma=3, rule="coupled", eos_id=-1)

def run(target, draft, source, asked):
    found = speculative(target, ModelDraft(draft), source, asked, options)
    return found.tokens.tolist()

found = {"1": run(target, draft, source, asked)}
for data, model in ((8, 1), (4, 2), (2, 4), (1, 8)):
    mesh = partitioning.make_mesh(data, model)
    placed = [partitioning.shard(m, mesh) for m in (target, draft)]
    given = partitioning.shard_rows((source, asked), mesh)
    found[f"{data}x{model}"] = run(*placed, *given)
    kernel = placed[0].model.params["decoder"]["layers_0"]["mlp"]["wi_0"]["kernel"]
    # Each device holds its share and no more.
    assert kernel.addressable_shards[0].data.size * model == kernel.size
    state = jax.jit(placed[0].start, static_argnums=1)(given[0], 12)
    keys = state.cache[0].keys
    assert keys.addressable_shards[0].data.size * 8 == keys.size, keys.sharding
json.dump(found, sys.stdout)
"""


@pytest.mark.slow
def test_every_mesh_gives_the_tokens_of_one_device():
    flags = [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_force_host_platform_device_count=8",
        # Programs that run for milliseconds: spare LLVM's optimiser.
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
    ]
    path = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"XLA_FLAGS": " ".join(flags), "JAX_PLATFORMS": "cpu", "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"1", "8x1", "4x2", "2x4", "1x8"}
    alone = np.array(found.pop("1"))
    assert len({tuple(row) for row in alone.tolist()}) == len(alone)
    for name, tokens in found.items():
        np.testing.assert_array_equal(tokens, alone, err_msg=name)


def mesh(data, model):
    return AbstractMesh((data, model), ("data", "model"))


def test_parameters_are_split_as_t5x_splits_them():
    specs = partitioning.parameter_specs(preset("base"), mesh(2, 4))
    layer = specs["decoder"]["layers_11"]
    assert layer["mlp"]["wi_0"]["kernel"] == P(None, "model")
    assert layer["mlp"]["wo"]["kernel"] == P("model", None)
    assert layer["self_attention"]["query"]["kernel"] == P(None, "model")
    assert layer["encoder_decoder_attention"]["out"]["kernel"] == P("model", None)
    assert layer["pre_mlp_layer_norm"]["scale"] == P(None)
    assert specs["decoder"]["logits_dense"]["kernel"] == P(None, "model")
    assert specs["decoder"]["relpos_bias"]["rel_embedding"] == P("model", None)
    assert specs["token_embedder"]["embedding"] == P("model", None)


def test_six_heads_are_replicated_on_four_and_split_on_two():
    small = preset("small")
    assert small.num_heads == 6
    for model, split in ((4, None), (2, "model")):
        specs = partitioning.parameter_specs(small, mesh(1, model))
        layer = specs["encoder"]["layers_0"]
        assert layer["attention"]["query"]["kernel"] == P(None, split)
        assert layer["attention"]["out"]["kernel"] == P(split, None)
        assert specs["encoder"]["relpos_bias"]["rel_embedding"] == P(split, None)
        assert layer["mlp"]["wo"]["kernel"] == P("model", None)


def test_a_mesh_that_does_not_fit_is_told():
    with pytest.raises(SpecdecError, match=r"3 x 2 .* has 6 devices, but there are \d"):
        partitioning.make_mesh(3, 2)


def test_a_batch_that_does_not_divide_is_told(monkeypatch):
    two = jax.sharding.Mesh(np.asarray(jax.devices() * 2).reshape(2, 1), ("data", "model"))
    with pytest.raises(SpecdecError, match="batch of 3 rows does not divide over 2 devices"):
        partitioning.shard_rows(np.zeros((3, 1)), two)
