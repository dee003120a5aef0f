"""Closed forms against the real loop, run on table models whose acceptance is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from specdec_jax.decoding import Options, request, speculative
from specdec_jax.drafts import ModelDraft
from specdec_jax.sampling import sampling
from specdec_jax.theory import (
    expected_tokens,
    expected_tokens_from_betas,
    operations_factor,
    tokens_distribution,
)

ROWS, ROUNDS = 64, 96
# Token 2 or 3 is of class 0, token 4 or 5 of class 1; the first of its class has this share.
TARGET, DRAFT = {0: 0.5, 1: 0.9}, {0: 0.6, 1: 0.1}
# beta is 1 - |a - b|, whatever class comes next: 0.9 after a token of class 0, 0.2 after class 1.
ALPHA = 0.55


def table(shares, stay):
    """A token is of its predecessor's class with probability `stay`, in target and draft alike.

    Acceptance depends on the predecessor's class and not on the token's own, since both split
    either class by the same shares. So with `stay` = 1/2 the classes are fair coins that no
    acceptance can see, and the betas, each a function of one class, are i.i.d.
    """
    probs = np.zeros((6, 6))
    for token in range(6):
        last = int(token >= 4)
        for kind in (0, 1):
            mass = stay if kind == last else 1 - stay
            probs[token, 2 + 2 * kind] = mass * shares[last]
            probs[token, 3 + 2 * kind] = mass * (1 - shares[last])
    # Finite, as the loop demands of logits; exp(log 1e-300) is 0 in float32.
    return toys.Table(jnp.asarray(np.log(np.maximum(probs, 1e-300)), jnp.float32)[None])


def accepted(*, gamma, stay, seed):
    """Accepted guesses of the first rounds of every row, none of them cut by the limit.

    No row reaches its limit before it has made `ROUNDS` rounds, and half of the rows begin in
    either class, so the rounds are a sample of the stationary law when `stay` is 1/2.
    """
    limit = ROUNDS * (gamma + 1)
    first = jnp.where(jnp.arange(ROWS) % 2 == 0, 2, 4)
    prompt = jnp.stack([jnp.zeros_like(first), first], axis=1).astype(jnp.int32)
    asked = request(
        ROWS,
        key=jax.random.key(seed),
        max_tokens=limit,
        prompt=prompt,
        settings=sampling(ROWS, temperature=1.0),
    )
    options = Options(max_tokens=limit, gamma=gamma, record=True)
    source = jnp.zeros((ROWS, 1), jnp.int32)
    decoded = speculative(
        table(TARGET, stay), ModelDraft(table(DRAFT, stay)), source, asked, options
    )
    assert int(decoded.counters.target_runs.min()) >= ROUNDS
    return np.asarray(decoded.rounds.accepted)[:, :ROUNDS]


def test_independent_betas_give_equation_1_and_theorem_3_11():
    gamma = 4
    tokens = accepted(gamma=gamma, stay=0.5, seed=4).ravel() + 1
    law = tokens_distribution(ALPHA, gamma=gamma)
    sizes = np.arange(1, gamma + 2)
    expected = law @ sizes
    # Rounds are independent, so the error of the mean is the law's own deviation over sqrt(n).
    error = np.sqrt((law @ sizes**2 - expected**2) / tokens.size)
    assert expected == pytest.approx(expected_tokens(ALPHA, gamma=gamma))
    assert abs(tokens.mean() - expected) < 3 * error

    # Each round costs gamma tokens of the draft and gamma + 1 of the target.
    c_hat = 0.1
    operations = tokens.size * (gamma * c_hat + gamma + 1) / tokens.sum()
    # First order: the relative error of a ratio is that of its denominator.
    assert operations == pytest.approx(
        operations_factor(ALPHA, gamma=gamma, c_hat=c_hat), rel=3 * error / expected
    )

    # The whole law, each size within three standard errors of its count.
    counts = np.bincount(tokens, minlength=gamma + 2)[1:]
    assert (abs(counts - law * tokens.size) < 3 * np.sqrt(tokens.size * law * (1 - law))).all()


def test_dependent_betas_break_equation_1_and_not_the_form_that_measures_them():
    gamma = 4
    rows = accepted(gamma=gamma, stay=0.05, seed=0)
    kept = rows.ravel()
    reached = np.array([(kept >= i).sum() for i in range(gamma)])
    passed = np.array([(kept > i).sum() for i in range(gamma)])
    # The product of ratios of counts telescopes, so this is the mean itself, up to rounding.
    assert expected_tokens_from_betas(passed / reached) == pytest.approx(kept.mean() + 1, rel=1e-12)
    # Easy and hard prefixes alternate here. The mean beta is what it was, but Eq. (1) now promises
    # too little: most rounds begin after a hard token, hence at an easy one. Rows are independent,
    # and give the error.
    error = rows.mean(axis=1).std() / np.sqrt(ROWS)
    assert expected_tokens(ALPHA, gamma=gamma) < kept.mean() + 1 - 3 * error
