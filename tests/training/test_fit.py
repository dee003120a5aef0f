"""The training loop on a toy task: it learns, it stops anywhere, it goes on as if it had not."""

import dataclasses
import functools
import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.errors import SpecdecError
from specdec_jax.t5 import t5
from specdec_jax.t5.config import T5Config
from specdec_jax.t5.network import Transformer
from specdec_jax.t5.relative_bias import bucket
from specdec_jax.training.examples import Batch, pad
from specdec_jax.training.fit import Guide, Recipe, evaluate, fit, loss_of
from specdec_jax.training.initial import LOCAL, inherited_parameters, initial_parameters
from specdec_jax.training.objectives import cross_entropy, distance, shift_right

pytestmark = pytest.mark.usefixtures("fast_compilation")

V = 12
CONFIG = T5Config(
    vocab_size=V,
    emb_dim=8,
    num_heads=2,
    head_dim=4,
    mlp_dim=16,
    num_encoder_layers=1,
    num_decoder_layers=1,
    logits_via_embedding=True,
    dropout_rate=0.1,
)
RECIPE = Recipe(steps=60, rate=3e-2, warmup=2, average=0.8, evaluate_every=20)


def stream(step):
    """Which of four texts the one source token stands for."""
    rng = np.random.default_rng(step)
    texts = {2: [6, 7, 1], 3: [8, 1], 4: [9, 6, 6, 1], 5: [10, 11, 7, 1]}
    return pad([([s, 1], texts[s]) for s in rng.integers(2, 6, 16).tolist()], (4, 4))


VALIDATION = [stream(1000), stream(1001)]


def train(folder, *, stream=stream, recipe=RECIPE, params=None, **kwargs):
    kwargs = {"validation": VALIDATION, "progress": False, **kwargs}
    # Optax's schedules and moments mix integers and floats.
    with jax.numpy_dtype_promotion("standard"):
        return fit(CONFIG, start() if params is None else params, stream, recipe, folder, **kwargs)


@functools.cache
def start(seed=0):
    """Initial parameters, made once: nobody may write into them."""
    return initial_parameters(CONFIG, seed)


def log_of(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


class PowerCutError(Exception):
    pass


def until(last):
    """A stream that breaks at a step, and notes the steps that were asked for."""
    asked = []

    def broken(step):
        asked.append(step)
        if step == last:
            raise PowerCutError
        return stream(step)

    return broken, asked


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    scores = []

    def score(params):
        scores.append(params)
        return {"count": float(len(scores))}

    return train(folder, score=score), log_of(folder)


def test_the_loss_falls(uninterrupted):
    params, log = uninterrupted
    before = evaluate(start(), CONFIG, VALIDATION)
    assert before == pytest.approx(math.log(V), rel=0.5)
    assert log[-1]["nll"] < 0.5 * before
    assert log[-1]["train"] < log[0]["train"]
    assert evaluate(params, CONFIG, VALIDATION) == log[-1]["nll"]


def test_the_log_has_an_entry_for_each_evaluation(uninterrupted):
    _, log = uninterrupted
    assert [entry["step"] for entry in log] == [20, 40, 60]
    assert [entry["count"] for entry in log] == [1, 2, 3]
    assert set(log[0]) == {"step", "train", "nll", "tokens", "seconds", "count"}
    for entry, first in zip(log, (0, 20, 40), strict=True):
        batches = [stream(step) for step in range(first, first + 20)]
        tokens = sum(np.count_nonzero(b.source) + np.count_nonzero(b.target) for b in batches)
        assert entry["tokens"] == tokens
        assert entry["seconds"] > 0


def test_the_caller_s_parameters_stay_his(uninterrupted):
    """An update takes its argument's memory, which at the first one is not the loop's to take."""
    del uninterrupted
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(start()))


def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path, uninterrupted):
    expected, log = uninterrupted
    broken, asked = until(33)
    with pytest.raises(PowerCutError):
        train(tmp_path, stream=broken)
    assert asked == list(range(34))
    assert [entry["step"] for entry in log_of(tmp_path)] == [20]

    # From the checkpoint at 20, whatever the parameters that it is given.
    whole, asked = until(-1)
    resumed = train(tmp_path, stream=whole, params=start(5))
    assert asked == list(range(20, 60))
    jax.tree.map(np.testing.assert_array_equal, resumed, expected)
    found = log_of(tmp_path)
    for name in ("step", "train", "nll", "tokens"):
        assert [entry[name] for entry in found] == [entry[name] for entry in log]

    # A finished run has nothing to do; a longer recipe goes on, to its own last step.
    nothing, asked = until(-1)
    jax.tree.map(np.testing.assert_array_equal, train(tmp_path, stream=nothing), expected)
    assert asked == []
    longer, asked = until(-1)
    more = train(tmp_path, stream=longer, recipe=dataclasses.replace(RECIPE, steps=63))
    assert asked == [60, 61, 62]
    assert [entry["step"] for entry in log_of(tmp_path)] == [20, 40, 60, 63]
    assert np.any(more["token_embedder"]["embedding"] != expected["token_embedder"]["embedding"])


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    params = jax.tree.map(lambda x: x * jnp.nan, start())
    with pytest.raises(ValueError, match=r"not finite between steps 0 and 20 of .*lower the learn"):
        train(tmp_path, params=params)
    assert not (tmp_path / "log.jsonl").exists()
    assert not list(tmp_path.glob("checkpoints/*"))


def logits_of(params, batch):
    tokens = batch.source, shift_right(batch.target)
    logits: Any = Transformer(CONFIG).apply({"params": params}, *tokens)
    return logits


def objective(params, batch, *, readout=None, guide=None, **recipe):
    recipe = Recipe(steps=1, **recipe)
    return loss_of(params, batch, None, readout, guide, config=CONFIG, recipe=recipe)


BATCH = Batch(*map(jnp.asarray, stream(0)[:2]))
RTOL = 1e-5
"""Sums over a few hundred float32 numbers."""


def test_the_loss_is_per_target_token():
    @jax.jit
    def compute(params):
        right = cross_entropy(logits_of(params, BATCH), BATCH.target, 0.1)
        return objective(params, BATCH, smoothing=0.1), *right

    found, loss, count = compute(start())
    assert count == np.count_nonzero(BATCH.target) < BATCH.target.size
    assert found == pytest.approx(float(loss / count), rel=RTOL)


@pytest.mark.parametrize("kind", ["forward_kl", "total_variation"])
def test_a_teacher_s_loss_is_its_distance_and_a_share_of_the_hard_one(kind):
    rng = np.random.default_rng(0)
    readout = jnp.asarray(rng.normal(size=(5, V)), jnp.float32)
    states = jnp.asarray(rng.normal(size=(*BATCH.target.shape, 5)), jnp.float16)
    batch = BATCH._replace(states=states)

    @jax.jit
    def compute(params):
        p, q = states.astype(jnp.float32) @ readout, logits_of(params, BATCH)
        soft, count = distance(q, p, BATCH.target, kind)
        hard, _ = cross_entropy(q, BATCH.target)
        found = [
            objective(params, batch, readout=readout, divergence=kind, hard=share)
            for share in (0.0, 0.3)
        ]
        return found, [soft / count, (soft + 0.3 * hard) / count]

    found, expected = compute(start())
    assert expected[1] > 1.2 * expected[0] > 0
    np.testing.assert_allclose(found, expected, rtol=RTOL)


def test_a_guide_teaches_its_head_alone():
    table = jnp.zeros((V, V)).at[2:6, 6:].set(1.0)
    attention = ("decoder", "layers_0", "encoder_decoder_attention", "query", "kernel")

    @jax.jit
    def compute(params):
        def extra(params, head, weight):
            guide = Guide(table, layer=0, head=head, weight=weight)
            return objective(params, BATCH, guide=guide) - objective(params, BATCH)

        found = [jax.value_and_grad(extra)(params, head, 1.0) for head in (0, 1)]
        return found, extra(params, 0, 2.0)

    (first, second), double = compute(start())
    assert double == pytest.approx(2 * float(first[0]), rel=1e-3)
    for taught, (loss, gradient) in enumerate((first, second)):
        assert loss > 0.01
        for name in attention:
            gradient = gradient[name]
        by_head = np.abs(np.asarray(gradient).reshape(8, 2, 4)).max(axis=(0, 2))
        assert by_head[taught] > 1e-4
        assert by_head[1 - taught] < 1e-6


def test_teacher_and_guide_run_in_the_loop(tmp_path):
    guide, readout = Guide(jnp.full((V, V), 0.1), layer=0), jnp.ones((5, V))

    def taught(step):
        batch = stream(step)
        return batch._replace(states=np.ones((*batch.target.shape, 5), np.float16))

    recipe = dataclasses.replace(RECIPE, steps=2, evaluate_every=2, hard=0.5)
    params = train(tmp_path, stream=taught, recipe=recipe, readout=readout, guide=guide)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(params))
    assert log_of(tmp_path)[0]["step"] == 2


@pytest.mark.parametrize("own", [False, True])
def test_initial_heads_look_nearby(own):
    config = dataclasses.replace(CONFIG, num_heads=4, relative_bias_per_layer=own)
    params = initial_parameters(config, 0)
    for stack, offsets in (("encoder", (-1, 0, 1)), ("decoder", (0, -1, -2))):
        home = params[stack]["layers_0"] if own else params[stack]
        table = np.asarray(home["relpos_bias"]["rel_embedding"])
        assert table.shape == (4, 32)
        assert np.count_nonzero(table) == 3
        for head, offset in enumerate(offsets):
            near = bucket(np.array(offset), bidirectional=stack == "encoder")
            assert table[head, near] == LOCAL


def test_initial_embeddings_are_small():
    """0.3 of T5's, whose 96 draws here know their deviation to 7%; another seed draws others."""
    tables = [np.asarray(start(seed)["token_embedder"]["embedding"]) for seed in (0, 1)]
    assert np.std(tables[0]) == pytest.approx(0.3, rel=0.25)
    assert np.any(tables[0] != tables[1])


TARGET = dataclasses.replace(CONFIG, mlp_dim=24, num_decoder_layers=3)
CUT = dataclasses.replace(CONFIG, mlp_dim=16, num_decoder_layers=1, dropout_rate=0.0)


def test_a_draft_cut_out_of_its_target_is_the_target_where_nothing_was_lost():
    whole = initial_parameters(TARGET, 3)
    # Layers 0 and 2 say nothing, nor do eight hidden units of each feed-forward layer.
    for name in ("layers_0", "layers_2"):
        layer = whole["decoder"][name]
        outs = ("self_attention", "out"), ("encoder_decoder_attention", "out"), ("mlp", "wo")
        for part, kernel in outs:
            layer[part][kernel]["kernel"] *= 0.0
    quiet = np.random.default_rng(0).permutation(24)[:8]
    for layer in (whole["encoder"]["layers_0"], whole["decoder"]["layers_1"]):
        layer["mlp"]["wo"]["kernel"] = layer["mlp"]["wo"]["kernel"].at[quiet].set(0.0)
    cut = inherited_parameters(t5(whole, TARGET), CUT, layer=1)
    tokens = [jnp.asarray(x) for x in (VALIDATION[0].source, VALIDATION[0].target)]
    tokens[1] = shift_right(tokens[1])
    logits = [
        np.asarray(Transformer(config).apply({"params": params}, *tokens))
        for params, config in ((whole, TARGET), (cut, CUT))
    ]
    np.testing.assert_allclose(logits[1], logits[0], rtol=1e-5, atol=1e-5)
    with pytest.raises(SpecdecError, match=r"Layer 3 of a target of D8 .* is no start for a draft"):
        inherited_parameters(t5(whole, TARGET), CUT, layer=3)
    with pytest.raises(SpecdecError, match="is no start"):
        inherited_parameters(t5(whole, TARGET), dataclasses.replace(CUT, num_heads=1), layer=0)
