"""The law of what verification emits, by enumeration: every drafted block, every cell of uniforms.

The uniforms enter only through comparisons with thresholds, so the unit interval of each falls
into two cells. One point of each cell goes through the function under test, weighted by the
cell's width; the thresholds are computed here, in float64, and the points lie within 1e-5 of them.
A threshold of the function that is further off puts a point on the wrong side, and the law fails.
"""

import itertools
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.sampling import accept_block, alpha, reject, sampling, standardize

BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))


def tables(seed, V, depth, settings):
    """p(. | prefix) for prefixes of 0..depth-1 tokens: shapes (V,), (V, V), ..."""
    ends = np.cumsum([V**level for level in range(depth)])
    # Halves: ties for the filters to meet.
    logits = np.round(np.random.default_rng(seed).normal(size=(1, ends[-1], V)) * 3) / 2
    probs = np.asarray(
        standardize(jnp.asarray(logits, jnp.float32), sampling(1, **settings)), np.float64
    )[0]
    levels = np.split(probs, ends[:-1])
    return [level.reshape((V,) * (i + 1)) for i, level in enumerate(levels)]


def completions(p):
    """Element k: the probability of x_{k+1}..x_{G+1} after x_1..x_k, as a full array (V,)*(G+1)."""
    depth, V = len(p), p[0].shape[0]
    rest = [np.ones((V,) * depth)]
    for level in reversed(range(depth)):
        factor = p[level].reshape(p[level].shape + (1,) * (depth - level - 1))
        rest.insert(0, factor * rest[0])
    return rest


def ratio(p, q, block, i):
    """p / q of guess i; blocks with q = 0 have weight 0, and any finite number serves."""
    guess = block[: i + 1]
    return p[i][guess] / (q[i][guess] or 1.0)


def token_thresholds(p, q, block, lenience=1.0):
    return [min(1.0, ratio(p, q, block, i) / lenience) for i in range(len(block))]


def block_thresholds(p, q, block):
    """h_i of arXiv:2403.10444, one position at a time and in float64."""
    w, thresholds = 1.0, []
    for i in range(len(block)):
        w = min(1.0, w * ratio(p, q, block, i))
        if i + 1 == len(block):
            thresholds.append(w)
        else:
            after = block[: i + 1]
            spare = np.maximum(w * p[i + 1][after] - q[i + 1][after], 0).sum()
            thresholds.append(1.0 if w == 1 else spare / (spare + 1 - w))
    return thresholds


def cells(threshold):
    """(a point, the width) of the accepting and of the rejecting part of [0, 1)."""
    if threshold == 0:
        return [(0.0, 0.0), (0.0, 1.0)]
    if threshold == 1:
        return [(BELOW_ONE, 1.0), (BELOW_ONE, 0.0)]
    near = min(5e-6, threshold / 2, (1 - threshold) / 2)
    return [(threshold - near, threshold), (min(threshold + near, BELOW_ONE), 1 - threshold)]


def emitted_law(verify, thresholds, p, q):
    """Joint law of G+1 tokens, completed from p where fewer were emitted, and E[n]."""
    V, gamma = p[0].shape[0], len(q)
    blocks, uniforms, weights = [], [], []
    for block in itertools.product(range(V), repeat=gamma):
        drafted = np.prod([q[i][block[: i + 1]] for i in range(gamma)])
        for pattern in itertools.product(*map(cells, thresholds(p, q, block))):
            blocks.append(block)
            uniforms.append([point for point, _ in pattern])
            weights.append(drafted * np.prod([width for _, width in pattern]))
    rows_p = np.stack([[p[i][b[:i]] for i in range(gamma + 1)] for b in blocks])
    rows_q = np.stack([[q[i][b[:i]] for i in range(gamma)] for b in blocks])
    verdict = verify(
        jnp.asarray(rows_p, jnp.float32),
        jnp.asarray(rows_q, jnp.float32),
        jnp.asarray(blocks, jnp.int32),
        jnp.asarray(uniforms, jnp.float32),
    )
    extras, rest = np.asarray(verdict.extra, np.float64), completions(p)
    law = np.zeros((V,) * (gamma + 1))
    for block, n, extra, weight in zip(
        blocks, verdict.accepted.tolist(), extras, weights, strict=True
    ):
        prefix = block[:n]
        law[prefix] += weight * extra.reshape((V,) + (1,) * (gamma - n)) * rest[n + 1][prefix]
    return law, float(np.dot(weights, verdict.accepted))


SETTINGS = [
    ({"temperature": 1.0}, {"temperature": 1.0}),
    ({"temperature": 0.5}, {"temperature": 0.5}),
    ({"temperature": 2.0}, {"temperature": 2.0}),
    ({"temperature": 0.0}, {"temperature": 0.0}),
    ({"temperature": 1.0, "top_k": 2}, {"temperature": 1.0, "top_k": 2}),
    ({"temperature": 1.0, "top_p": 0.7}, {"temperature": 1.0, "top_p": 0.7}),
    (
        {"temperature": 0.8, "top_k": 3, "top_p": 0.8},
        {"temperature": 0.8, "top_k": 3, "top_p": 0.8},
    ),
    # The draft may be standardized in any other way.
    ({"temperature": 0.7}, {"temperature": 0.0}),
    ({"temperature": 1.0}, {"temperature": 2.0}),
    ({"temperature": 0.0}, {"temperature": 1.0}),
    ({"temperature": 1.0, "top_k": 2}, {"temperature": 0.5, "top_p": 0.9}),
]
SIZES = [(5, 1), (5, 2), (3, 3)]


@pytest.mark.parametrize(("V", "gamma"), SIZES)
@pytest.mark.parametrize(("target", "draft"), SETTINGS)
def test_both_rules_emit_the_target_s_joint_law(V, gamma, target, draft):
    p = tables(2, V, gamma + 1, target)
    q = tables(3, V, gamma + 1, draft)[:-1]
    joint = completions(p)[0]
    by_token, token_length = emitted_law(reject, token_thresholds, p, q)
    by_block, block_length = emitted_law(accept_block, block_thresholds, p, q)
    np.testing.assert_allclose(by_token, joint, atol=1e-6)
    np.testing.assert_allclose(by_block, joint, atol=1e-6)
    assert block_length >= token_length - 1e-6
    if gamma == 1:
        # One guess: both rules accept sum_x min(p, q), Theorem 3.5.
        beta = np.minimum(p[0], q[0]).sum()
        assert token_length == pytest.approx(beta, abs=1e-6)
        assert block_length == pytest.approx(beta, abs=1e-6)


def context_free(distribution, depth):
    V = len(distribution)
    return [np.broadcast_to(distribution, (V,) * (i + 1)) for i in range(depth)]


def test_the_example_of_the_block_paper():
    p, q = context_free([1 / 3, 2 / 3], 3), context_free([2 / 3, 1 / 3], 2)
    _, token_length = emitted_law(reject, token_thresholds, p, q)
    _, block_length = emitted_law(accept_block, block_thresholds, p, q)
    assert token_length == pytest.approx(10 / 9, abs=1e-6)
    assert block_length == pytest.approx(11 / 9, abs=1e-6)


@pytest.mark.parametrize("gamma", [1, 2])
@pytest.mark.parametrize("lenience", [0.5, 0.1])
def test_lenience_is_bounded_and_accepts_what_the_paper_says(lenience, gamma):
    p, q = (tables(seed, 5, gamma + 1, {"temperature": 0.8}) for seed in (2, 3))
    q = q[:-1]
    law, length = emitted_law(
        partial(reject, lenience=lenience),
        partial(token_thresholds, lenience=lenience),
        p,
        q,
    )
    joint = completions(p)[0]
    assert law.sum() == pytest.approx(1.0, abs=1e-6)
    first, exact = (x.reshape(5, -1).sum(1) for x in (law, joint))
    assert np.all(first <= exact / lenience + 1e-6)
    assert np.all(law <= joint / lenience**gamma + 1e-6)
    assert np.abs(law - joint).max() > 1e-2, (
        "lenience changes the law; otherwise this tests nothing"
    )
    # And to the letter: min(q, p / l) accepted, and norm(max(0, p - l q)) where it is not.
    kept = np.minimum(q[0], p[0] / lenience)
    owed = np.maximum(p[0] - lenience * q[0], 0)
    assert kept.sum() < 0.9, "something must be rejected"
    np.testing.assert_allclose(first, kept + (1 - kept.sum()) * owed / owed.sum(), atol=1e-6)
    if gamma == 1:
        expected = alpha(jnp.asarray(p[0] / lenience), jnp.asarray(q[0]))
        assert length == pytest.approx(float(expected), abs=1e-6)
