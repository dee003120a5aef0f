import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling import GREEDY_TEMPERATURE, Sampling, adjust, draw, sampling, standardize

MIXED = (
    {},
    {"temperature": 1e-6},
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 3},
    {"temperature": 1.3, "top_p": 0.6},
    {"temperature": 0.9, "top_k": 6, "top_p": 0.8},
)


def normal(seed, *shape):
    """NumPy's: one compilation less for each shape."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def mixed_settings():
    defaults = {"temperature": 0.0, "top_k": 0, "top_p": 1.0}
    rows = [defaults | row for row in MIXED]
    return sampling(len(rows), **{name: [row[name] for row in rows] for name in defaults})


def log(*probs):
    return jnp.log(jnp.array([[probs]], jnp.float32))


def sorted_reference(logits, temperature, top_k, top_p):
    """The filters by sorting, in float64, for one row of V; also how near top-p came to a tie."""
    x = logits.astype(np.float64) / temperature
    kept = np.ones(x.shape, bool)
    if top_k:
        kept = x >= np.sort(x)[::-1][min(top_k, x.size) - 1]
    clearance = 1.0
    if top_p < 1:
        probs = np.where(kept, np.exp(x - x.max()), 0.0)
        probs /= probs.sum()
        descending = np.sort(probs)[::-1]
        mass = np.cumsum(descending)
        clearance = np.abs(mass - top_p).min()
        kept &= probs >= descending[np.argmax(mass >= top_p)] * (1 - 1e-12)
    probs = np.where(kept, np.exp(x - x.max()), 0.0)
    return kept, probs / probs.sum(), clearance


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    ("top_k", "top_p"),
    [(0, 1.0), (1, 1.0), (7, 1.0), (1000, 1.0), (0, 0.05), (0, 0.4321), (0, 0.9931), (9, 0.7321)],
)
def test_filters_equal_sorting_with_ties(temperature, top_k, top_p):
    # Steps of 1/2 in [-3, 3] over 40 tokens: every threshold falls among equals.
    logits = np.random.default_rng(0).integers(-6, 7, (4, 3, 40)).astype(np.float32) / 2
    settings = sampling(4, temperature=temperature, top_k=top_k, top_p=top_p)
    adjusted = np.asarray(adjust(jnp.asarray(logits), settings))
    probs = np.asarray(standardize(jnp.asarray(logits), settings))
    for index in np.ndindex(4, 3):
        kept, expected, clearance = sorted_reference(logits[index], temperature, top_k, top_p)
        assert clearance > 1e-5, "choose another top_p: float32 may decide this one either way"
        np.testing.assert_array_equal(np.isfinite(adjusted[index]), kept)
        # Float32: a few roundings of 6e-8 relative to each value.
        np.testing.assert_allclose(probs[index], expected, rtol=2e-6)
        assert np.all(probs[index][~kept] == 0)


def test_filters_without_ties_keep_exactly_k():
    logits = normal(3, 1, 5, 1000) * 4
    for k in (1, 2, 17, 999):
        kept = jnp.isfinite(adjust(logits, sampling(1, temperature=1.0, top_k=k)))
        assert jnp.all(jnp.sum(kept, axis=-1) == k)


def test_temperature_comes_before_top_p():
    # Squared and renormalised (.5, .3, .2) is (.66, .24, .11): .6 is reached by one token, not two.
    probs = standardize(log(0.5, 0.3, 0.2), sampling(1, temperature=0.5, top_p=0.6))
    assert probs.tolist() == [[[1.0, 0.0, 0.0]]]


def test_top_p_weighs_what_top_k_left():
    # (.4, .3) renormalised is (.57, .43): .55 is reached by one token; without top-k by two.
    probs = standardize(log(0.4, 0.3, 0.2, 0.1), sampling(1, temperature=1.0, top_k=2, top_p=0.55))
    assert probs.tolist() == [[[1.0, 0.0, 0.0, 0.0]]]


def test_ties_stay_together_under_the_filters():
    logits = jnp.array([[[1.0, 0.0, -0.0, 0.0, -1.0]]])
    for settings in (
        sampling(1, temperature=1.0, top_k=2),
        sampling(1, temperature=1.0, top_p=0.6),  # e / (e + 3 + 1/e) = .45
    ):
        kept = jnp.isfinite(adjust(logits, settings))
        assert kept.tolist() == [[[True, True, True, True, False]]]


@pytest.mark.parametrize("temperature", [0.0, 1e-6, GREEDY_TEMPERATURE])
@pytest.mark.parametrize(
    ("logits", "winner"),
    [
        ([0.0, 2.0, 2.0, 1.0], 1),
        ([3.0, 3.0, 3.0, 1.0], 0),
        ([-1.0, -0.0, 0.0, -2.0], 1),
        ([-1.0, 0.0, -0.0, -2.0], 1),
        ([-jnp.inf, -jnp.inf, -5.0, -jnp.inf], 2),
        ([1e-30, 3e38, -3e38, 0.0], 1),
    ],
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_greedy_is_the_lowest_id_of_the_largest_logit(temperature, logits, winner, dtype):
    settings = sampling(1, temperature=temperature, top_k=2, top_p=0.5)
    probs = standardize(jnp.array([[logits]], dtype), settings)
    assert probs.dtype == jnp.float32
    assert probs[0, 0].tolist() == [float(token == winner) for token in range(4)]


def test_just_above_the_greedy_bound_is_sampled():
    logits = jnp.array([[[1.0, 1.0, 0.0]]])
    probs = standardize(logits, sampling(1, temperature=2 * GREEDY_TEMPERATURE))
    assert probs.tolist() == [[[0.5, 0.5, 0.0]]]


def test_nan_is_seen_whatever_the_settings():
    settings = mixed_settings()
    logits = jnp.zeros((len(MIXED), 1, 8)).at[:, 0, 2].set(jnp.nan)
    assert jnp.all(jnp.any(jnp.isnan(standardize(logits, settings)), axis=-1))
    greedy = sampling(len(MIXED))
    assert jnp.all(jnp.any(jnp.isnan(standardize(logits, greedy)), axis=-1))


def test_bfloat16_logits_are_computed_in_float32():
    logits = normal(0, len(MIXED), 2, 50).astype(jnp.bfloat16)
    settings = mixed_settings()
    probs = standardize(logits, settings)
    np.testing.assert_array_equal(probs, standardize(logits.astype(jnp.float32), settings))
    assert probs.dtype == jnp.float32


def test_a_mixed_batch_equals_homogeneous_ones_to_the_bit():
    B = len(MIXED)
    # Quarters, so that the filters also meet ties.
    logits = jnp.round(normal(1, B, 2, 67) * 8) / 4
    keys = jax.random.split(jax.random.key(2), (B, 2))
    probs = standardize(logits, mixed_settings())
    tokens = draw(keys, probs)
    assert jnp.all(jnp.isfinite(probs))
    for row, settings in enumerate(MIXED):
        alone = standardize(logits, sampling(B, **settings))
        np.testing.assert_array_equal(probs[row], alone[row])
        np.testing.assert_array_equal(tokens[row], draw(keys, alone)[row])


def test_settings_are_traced():
    traced = []

    @jax.jit
    def run(logits, keys, settings):
        traced.append(settings)
        return draw(keys, standardize(logits, settings))

    B = len(MIXED)
    logits = normal(1, B, 2, 67)
    keys = jax.random.split(jax.random.key(0), (B, 2))
    changing = [sampling(B, **row) for row in MIXED]
    for settings in (*changing, mixed_settings()):
        np.testing.assert_array_equal(
            run(logits, keys, settings), draw(keys, standardize(logits, settings))
        )
    assert len(traced) == 1


def test_sampling_accepts_tracers():
    settings = jax.jit(lambda t, k, p: sampling(2, temperature=t, top_k=k, top_p=p))(
        0.5, jnp.array([1, 2]), 0.25
    )
    assert isinstance(settings, Sampling)
    assert [leaf.tolist() for leaf in settings] == [[0.5, 0.5], [1, 2], [0.25, 0.25]]
    assert [leaf.dtype for leaf in settings] == [jnp.float32, jnp.int32, jnp.float32]


def test_an_enormous_top_k_is_off():
    assert sampling(1, top_k=2**40).top_k.tolist() == [2**31 - 1]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"temperature": [0.5, -1.0]},
            "temperature[1] is -1.0, but must be finite and at least 0 (0 is argmax).",
        ),
        (
            {"temperature": float("nan")},
            "temperature is nan, but must be finite and at least 0 (0 is argmax).",
        ),
        (
            {"temperature": float("inf")},
            "temperature is inf, but must be finite and at least 0 (0 is argmax).",
        ),
        (
            {"top_k": [-1, 2]},
            "top_k[0] is -1, but must be a whole number, at least 0 (0 turns the filter off).",
        ),
        (
            {"top_k": 2.5},
            "top_k is 2.5, but must be a whole number, at least 0 (0 turns the filter off).",
        ),
        (
            {"top_p": [1.0, 0.0]},
            "top_p[1] is 0.0, but must be above 0 and at most 1 "
            "(1 turns the filter off; for argmax set temperature to 0).",
        ),
        (
            {"top_p": 1e-50},
            "top_p is 1e-50, but must be above 0 and at most 1 "
            "(1 turns the filter off; for argmax set temperature to 0).",
        ),
        (
            {"top_p": 1.5},
            "top_p is 1.5, but must be above 0 and at most 1 "
            "(1 turns the filter off; for argmax set temperature to 0).",
        ),
        (
            {"temperature": [1.0, 1.0, 1.0]},
            "temperature has shape (3,), but the batch has 2 rows: "
            "give one value, or one for each row.",
        ),
    ],
)
def test_settings_outside_their_domain(settings, sentence):
    with pytest.raises(SpecdecError) as error:
        sampling(2, **settings)
    assert str(error.value) == sentence


def test_draw_follows_the_distribution_independently_at_each_position():
    p = jnp.array([0.6, 0.0, 0.3, 0.1])
    rows = 50_000
    keys = jax.random.split(jax.random.key(7), (rows, 2))
    tokens = np.asarray(jax.jit(draw)(keys, jnp.broadcast_to(p, (rows, 2, 4))))
    assert tokens.dtype == np.int32
    pairs = np.bincount(tokens[:, 0] * 4 + tokens[:, 1], minlength=16)
    expected = np.outer(p, p).ravel() * rows
    possible = expected > 0
    assert pairs[~possible].sum() == 0
    # Chi-square on the joint of two positions, 8 degrees of freedom; a right draw fails this
    # for one seed in ten thousand, and the seed is fixed.
    assert scipy.stats.chisquare(pairs[possible], expected[possible]).pvalue > 1e-4


def test_impossible_tokens_are_never_drawn():
    rows, V = 100_000, 32
    # One token in four is possible, with probabilities over nine orders of magnitude.
    p = jnp.where(jnp.arange(V) % 4 == 3, jnp.logspace(0.0, -9.0, V), 0.0)
    keys = jax.random.split(jax.random.key(8), (rows, 1))
    tokens = jax.jit(draw)(keys, jnp.broadcast_to(p / p.sum(), (rows, 1, V)))
    assert jnp.all(tokens % 4 == 3)


def test_one_hot_rows_ignore_their_key():
    probs = jax.nn.one_hot(jnp.arange(64)[:, None] % 5, 5)
    for seed in range(3):
        keys = jax.random.split(jax.random.key(seed), (64, 1))
        assert jnp.all(draw(keys, probs)[:, 0] == jnp.arange(64) % 5)


def test_a_probability_of_one_still_leaves_the_others_a_chance():
    # The first may be 1 only by rounding; noise is left out where there is nothing else to draw.
    probs = jnp.broadcast_to(jnp.array([1.0, 0.5, 0.5]), (256, 1, 3))
    tokens = draw(jax.random.split(jax.random.key(1), (256, 1)), probs)
    assert set(tokens[:, 0].tolist()) == {0, 1, 2}
