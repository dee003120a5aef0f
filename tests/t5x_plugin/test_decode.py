"""Whole decodes on tiny random models, against T5X's own temperature_sample."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from t5x import decoding as stock
from t5x import models as stock_models

# Sums of 20 float32 log-probabilities, each off by a few units in the last place of logits of
# order 10 (the block of gamma + 1 tokens is another matrix product than one token).
SCORES = {"rtol": 0, "atol": 20 * 16 * np.finfo(np.float32).eps * 10}

# (num_decodes, what T5X's function is given when it is built, traced settings of each decode).
# A traced topp of 0 makes T5X's sampler mask all tokens, so there 0 is static.
CASES = {
    "one decode": (
        1,
        {"topp": 0.0},
        [
            {"temperature": 0.0, "topk": 0},
            {"temperature": 1.0, "topk": 0},
            {"temperature": 0.7, "topk": 20},
            {"temperature": 2.0, "topk": 1},
        ],
    ),
    "two decodes": (
        2,
        {},
        [
            {"temperature": 1.0, "topk": 0, "topp": 0.9},
            {"temperature": 0.7, "topk": 20, "topp": 0.8},
            {"temperature": 0.0, "topk": 0, "topp": 0.9},
        ],
    ),
}


def both(num_decodes=1, stock_options=None, **options):
    """T5X's decode and ours as functions of (examples, rng, traced decoder_params)."""
    decode_fn = functools.partial(stock.temperature_sample, **{"topk": 0, **(stock_options or {})})
    plain = tiny.plain_model(decode_fn, num_decodes=num_decodes, return_all_decodes=True)
    defaults = stock_models.DecoderParams(num_decodes=num_decodes, return_all_decodes=True)
    ours = tiny.speculative_model(
        default_decoder_params=defaults, gamma=2, **{"rule": "coupled", **options}
    )
    tree = tiny.pair()

    def jitted(model, prompt):
        @jax.jit
        def run(examples, rng, decoder_params):
            return model.predict_batch_with_aux(
                tree, examples, rng, dict(decoder_params), prompt_with_targets=prompt
            )

        return lambda *args: jax.tree.map(np.asarray, run(*args))

    prompt = options.get("prompt_with_targets", False)
    # T5X's own model reads the target's parameters out of the joint tree, and ignores the draft's.
    return jitted(plain, prompt), jitted(ours, None)


def assert_same(theirs, ours):
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[1]["scores"], theirs[1]["scores"], **SCORES)


@pytest.mark.parametrize("case", CASES)
def test_coupled_samples_are_those_of_t5x(case):
    num_decodes, fixed, settings = CASES[case]
    plain, ours = both(num_decodes, fixed, **fixed)
    examples = tiny.batch(rows=6, length=20)
    drafted, accepted, lengths = 0, 0, set()
    for seed, decoder_params in enumerate(settings):
        theirs = plain(examples, jax.random.PRNGKey(seed), decoder_params)
        found = ours(examples, jax.random.PRNGKey(seed), decoder_params)
        assert found[0].shape == (6, num_decodes, 20)
        assert_same(theirs, found)
        drafted += found[1]["drafted"].sum()
        accepted += found[1]["accepted"].sum()
        lengths |= set((theirs[0] != 0).sum(-1).ravel().tolist())
        # Rounds of 3 tokens at most, and each of at least one.
        generated = (found[0] != 0).sum(-1)
        assert (found[1]["target_runs"] * 3 >= generated).all()
        np.testing.assert_allclose(
            found[1]["mean_accepted_length"] * found[1]["target_runs"],
            found[1]["accepted"] + found[1]["target_runs"] - _cut_short(found),
        )
    # The comparison would be worth little if the draft were always right or always wrong, or if
    # no row ended before the others.
    assert 0.1 < accepted / drafted < 0.95
    assert len(lengths) > 5


def _cut_short(found):
    """Rounds whose last token was a guess, an end token or the last that fits: 0 or 1 a row."""
    tokens, aux = found
    lengths = np.round(aux["mean_accepted_length"] * aux["target_runs"])
    missing = aux["accepted"] + aux["target_runs"] - lengths
    assert np.isin(missing, (0, 1)).all()
    assert tokens.shape[:2] == missing.shape
    return missing


def test_temperature_of_each_row_and_scores_of_the_model_itself():
    plain, ours = both(
        2, {"rescale_log_probs": False, "topk": 12}, rescale_log_probs=False, topk=12
    )
    examples = tiny.batch(rows=4, length=16, seed=3)
    decoder_params = {"temperature": jnp.array([0.0, 0.5, 1.0, 2.0])}
    theirs = plain(examples, jax.random.PRNGKey(5), decoder_params)
    found = ours(examples, jax.random.PRNGKey(5), decoder_params)
    assert_same(theirs, found)
    # T5X maps over rows with one key, so all decodes of a row are the same; and so are ours.
    np.testing.assert_array_equal(theirs[0][:, 0], theirs[0][:, 1])


def test_prompts_and_limits():
    plain, ours = both(
        1,
        {"temperature": 1.0, "max_decode_steps_hard_limit": 6},
        temperature=1.0,
        prompt_with_targets=True,
        max_decode_steps_hard_limit=6,
    )
    examples = tiny.batch(rows=5, length=16, seed=4)
    prompts = np.zeros((5, 16), np.int32)
    prompts[1, 1:5] = [7, 8, 9, 1]  # T5X takes end tokens out of prompts
    prompts[2, 1:12] = np.arange(2, 13)
    prompts[3, 1:16] = np.arange(3, 18)  # no slot is left but the last
    prompts[4, [1, 2, 5]] = [7, 8, 9]  # given tokens behind free slots
    examples["decoder_input_tokens"] = jnp.asarray(prompts)
    for steps in (3, 9):
        decoder_params = {"max_decode_steps": steps}
        theirs = plain(examples, jax.random.PRNGKey(steps), decoder_params)
        found = ours(examples, jax.random.PRNGKey(steps), decoder_params)
        assert_same(theirs, found)


def test_callback_sees_each_position_as_t5x_shows_it():
    def callback(logits, state):
        # Odd positions repeat the token before; position 5 must end the row if token 9 was used.
        index = state.cur_index[:, None]
        previous = jax.nn.one_hot(state.cur_token[:, 0], logits.shape[-1], dtype=bool)
        logits = jnp.where((index % 2 == 1) & previous, 50.0, logits)
        used = jnp.any(state.sequences == 9, axis=1, keepdims=True)
        end = jnp.arange(logits.shape[-1]) == 1
        return jnp.where((index == 5) & used & end, 99.0, logits + 0.01 * state.step)

    plain, ours = both(1, {"logit_callback_fn": callback}, logit_callback_fn=callback)
    examples = tiny.batch(rows=6, length=14, seed=5)
    theirs = plain(examples, jax.random.PRNGKey(0), {"temperature": 1.5})
    found = ours(examples, jax.random.PRNGKey(0), {"temperature": 1.5})
    assert_same(theirs, found)
    assert (theirs[0][:, 0, 1] == theirs[0][:, 0, 0]).all()


def test_rejection_is_greedy_at_temperature_zero_and_reads_its_key_above():
    plain, ours = both(1, rule="rejection")
    examples = tiny.batch(rows=6, length=16, seed=6)
    found = [
        ours(examples, jax.random.PRNGKey(seed), {"temperature": temperature})[0]
        for seed, temperature in ((0, 0.0), (0, 1.0), (1, 1.0))
    ]
    theirs = plain(examples, jax.random.PRNGKey(0), {"temperature": 0.0})[0]
    np.testing.assert_array_equal(found[0], theirs)
    assert not np.array_equal(found[1], found[2])
