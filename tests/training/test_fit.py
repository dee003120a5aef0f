"""The training loop on a toy task: it learns, it stops anywhere, it goes on as if it had not."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.t5.config import T5Config
from specdec_jax.t5.network import Transformer
from specdec_jax.t5.relative_bias import bucket
from specdec_jax.training.examples import Batch, pad
from specdec_jax.training.fit import Guide, Recipe, Teacher, evaluate, fit, loss_of
from specdec_jax.training.initial import LOCAL, initial_parameters
from specdec_jax.training.objectives import cross_entropy, forward_kl, shift_right

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
RECIPE = Recipe(steps=24, rate=2e-2, warmup=2, average=0.8, evaluate_every=8)


def stream(step):
    """Which of four texts the one source token stands for."""
    rng = np.random.default_rng(step)
    texts = {2: [6, 7, 1], 3: [8, 1], 4: [9, 6, 6, 1], 5: [10, 11, 7, 1]}
    return pad([([s, 1], texts[s]) for s in rng.integers(2, 6, 16).tolist()], 4)


VALIDATION = [stream(1000), stream(1001)]


def train(folder, *, stream=stream, recipe=RECIPE, params=None, **kwargs):
    params = initial_parameters(CONFIG, 0) if params is None else params
    return fit(
        CONFIG, params, stream, recipe, folder, validation=VALIDATION, progress=False, **kwargs
    )


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
    start = initial_parameters(CONFIG, 0)
    scores = []

    def score(params):
        scores.append(params)
        return {"count": float(len(scores))}

    return start, train(folder, params=start, score=score), log_of(folder)


def test_the_loss_falls(uninterrupted):
    start, params, log = uninterrupted
    before = evaluate(start, CONFIG, VALIDATION)
    assert before == pytest.approx(math.log(V), rel=0.5)
    assert log[-1]["nll"] < 0.5 * before
    assert log[-1]["train"] < log[0]["train"]
    assert evaluate(params, CONFIG, VALIDATION) == log[-1]["nll"]


def test_the_log_has_an_entry_for_each_evaluation(uninterrupted):
    _, _, log = uninterrupted
    assert [entry["step"] for entry in log] == [8, 16, 24]
    assert [entry["count"] for entry in log] == [1, 2, 3]
    assert set(log[0]) == {"step", "train", "nll", "tokens", "seconds", "count"}
    for entry, first in zip(log, (0, 8, 16), strict=True):
        batches = [stream(step) for step in range(first, first + 8)]
        tokens = sum(np.count_nonzero(b.source) + np.count_nonzero(b.target) for b in batches)
        assert entry["tokens"] == tokens
        assert entry["seconds"] > 0


def test_the_caller_s_parameters_stay_his(uninterrupted):
    start, _, _ = uninterrupted
    jax.tree.map(np.testing.assert_array_equal, start, initial_parameters(CONFIG, 0))


def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path, uninterrupted):
    _, expected, log = uninterrupted
    broken, asked = until(13)
    with pytest.raises(PowerCutError):
        train(tmp_path, stream=broken)
    assert asked == list(range(14))
    assert [entry["step"] for entry in log_of(tmp_path)] == [8]

    # From the checkpoint at 8, whatever the parameters that it is given.
    whole, asked = until(-1)
    resumed = train(tmp_path, stream=whole, params=initial_parameters(CONFIG, 5))
    assert asked == list(range(8, 24))
    jax.tree.map(np.testing.assert_array_equal, resumed, expected)
    found = log_of(tmp_path)
    for name in ("step", "train", "nll", "tokens"):
        assert [entry[name] for entry in found] == [entry[name] for entry in log]

    # A finished run has nothing to do; a longer recipe goes on, to its own last step.
    nothing, asked = until(-1)
    jax.tree.map(np.testing.assert_array_equal, train(tmp_path, stream=nothing), expected)
    assert asked == []
    longer, asked = until(-1)
    more = train(tmp_path, stream=longer, recipe=dataclasses.replace(RECIPE, steps=27))
    assert asked == [24, 25, 26]
    assert [entry["step"] for entry in log_of(tmp_path)] == [8, 16, 24, 27]
    assert np.any(more["token_embedder"]["embedding"] != expected["token_embedder"]["embedding"])


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    params = initial_parameters(CONFIG, 0)
    params["decoder"]["decoder_norm"]["scale"] *= jnp.nan
    with pytest.raises(ValueError, match=r"not finite between steps 0 and 8 of .*lower the learn"):
        train(tmp_path, params=params)
    assert not (tmp_path / "log.jsonl").exists()
    assert not list(tmp_path.glob("checkpoints/*"))


@jax.jit
def logits_of(params, batch):
    tokens = batch.source, shift_right(batch.target)
    return Transformer(CONFIG).apply({"params": params}, *tokens)


def objective(params, batch, *, teacher=None, guide=None, **recipe):
    batch = Batch(*map(jnp.asarray, batch))
    recipe = Recipe(steps=1, **recipe)
    return loss_of(params, batch, None, teacher, guide, config=CONFIG, recipe=recipe)


RTOL = 1e-5
"""Sums over a few hundred float32 numbers."""


def test_the_loss_is_per_target_token():
    params, batch = initial_parameters(CONFIG, 0), stream(0)
    logits = logits_of(params, batch)
    loss, count = cross_entropy(logits, jnp.asarray(batch.target), 0.1)
    assert count == np.count_nonzero(batch.target) < batch.target.size
    assert objective(params, batch, smoothing=0.1) == pytest.approx(loss / count, rel=RTOL)


def test_a_teacher_s_loss_is_its_kl_and_a_share_of_the_hard_one():
    params, other, batch = initial_parameters(CONFIG, 0), initial_parameters(CONFIG, 1), stream(0)
    p, q = logits_of(other, batch), logits_of(params, batch)
    soft, count = forward_kl(q, p, jnp.asarray(batch.target))
    hard, _ = cross_entropy(q, jnp.asarray(batch.target))
    teacher = Teacher(other, CONFIG)
    for share in (0.0, 0.3):
        expected = (soft + share * hard) / count
        found = objective(params, batch, teacher=teacher, hard=share)
        assert found == pytest.approx(expected, rel=RTOL)
    assert objective(params, batch, teacher=Teacher(params, CONFIG)) == pytest.approx(0, abs=1e-6)


def test_a_guide_teaches_its_head_alone():
    params, batch = initial_parameters(CONFIG, 0), stream(0)
    table = jnp.zeros((V, V)).at[2:6, 6:].set(1.0)
    plain = objective(params, batch)
    guided = jax.value_and_grad(
        lambda params, head: (
            objective(params, batch, guide=Guide(table, layer=0, head=head)) - plain
        )
    )
    for head in (0, 1):
        extra, gradient = guided(params, head)
        assert extra > 0.01
        del gradient
    weights = [objective(params, batch, guide=Guide(table, 0, weight=w)) - plain for w in (1, 2)]
    assert weights[1] == pytest.approx(2 * weights[0], rel=1e-3)


def test_teacher_and_guide_run_in_the_loop(tmp_path):
    guide = Guide(jnp.full((V, V), 0.1), layer=0)
    recipe = dataclasses.replace(RECIPE, steps=2, evaluate_every=2, hard=0.5)
    params = train(
        tmp_path, recipe=recipe, teacher=Teacher(initial_parameters(CONFIG, 1), CONFIG), guide=guide
    )
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(params))
    assert log_of(tmp_path)[0]["step"] == 2


def test_initial_heads_look_nearby():
    config = dataclasses.replace(CONFIG, num_heads=4)
    params = initial_parameters(config, 0, embedding=0.5)
    for stack, offsets in (("encoder", (-1, 0, 1)), ("decoder", (0, -1, -2))):
        table = np.asarray(params[stack]["relpos_bias"]["rel_embedding"])
        assert table.shape == (4, 32)
        assert np.count_nonzero(table) == 3
        for head, offset in enumerate(offsets):
            near = bucket(np.array(offset), bidirectional=stack == "encoder")
            assert table[head, near] == LOCAL
    embedding = params["token_embedder"]["embedding"]
    double = initial_parameters(config, 0, embedding=1.0)["token_embedder"]["embedding"]
    np.testing.assert_allclose(2 * embedding, double, rtol=1e-6)
    assert np.any(initial_parameters(config, 1)["token_embedder"]["embedding"] != double)
