"""A decode's memory: models and caches once, and little else."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_pairs import CONFIG, tiny_pair, tiny_t5

from specdec_jax.bench import memory
from specdec_jax.generate import Settings
from specdec_jax.t5 import prepare

SOURCE = np.full((2, 32), 5, np.int32)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A target so large that a copy of it could not hide among the activations."""
    sizes = {"emb_dim": 256, "mlp_dim": 1024, "num_heads": 8, "head_dim": 32}
    large = prepare(tiny_t5(config=dataclasses.replace(CONFIG, **sizes)))
    return dataclasses.replace(tiny_pair(tmp_path_factory.mktemp("tiny")), target=large)


@pytest.mark.parametrize("gamma", [0, 2])
def test_a_decode_holds_models_and_caches_and_a_tenth_more(pair, gamma):
    found = memory.compiled(pair, SOURCE, Settings(gamma=gamma, max_tokens=64))
    assert found["compile_seconds"] > 0
    # One layer's keys and values of 64 + 1 + gamma + 1 slots and 32 of the source, two rows.
    target = 2 * 4 * 2 * 256 * (64 + 2 + gamma + 32)
    assert found["caches"] > target
    assert found["weights"] >= sum(p.nbytes for p in jax.tree.leaves(pair.target.params))
    assert 0.9 < found["peak_over_both"] < 1.1


def test_a_copy_of_the_weights_would_be_seen():
    table = jnp.ones((256, 256))

    def copies(x):
        return x.at[0, 0].add(1.0).sum(), x

    analysis = jax.jit(copies).lower(table).compile().memory_analysis()
    assert memory.memory_of(analysis).peak > 1.9 * table.nbytes
