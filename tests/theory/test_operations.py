import numpy as np
import pytest

from specdec_jax.errors import SpecdecError
from specdec_jax.theory import (
    expected_tokens,
    operations_factor,
    target_runs_factor,
    tokens_distribution,
)


def test_table_1_operations():
    alpha = np.array([0.6, 0.7, 0.8, 0.8, 0.9, 0.9])
    gamma = np.array([2, 3, 2, 5, 2, 10])
    found = operations_factor(alpha, gamma=gamma, c_hat=0)
    assert np.round(found, 2).tolist() == [1.53, 1.58, 1.23, 1.63, 1.11, 1.60]


def test_theorem_3_11_counts_the_operations_of_a_round():
    # One round drafts 3 tokens at 0.25 each and evaluates the target at 4 positions.
    per_round = 3 * 0.25 + 4
    tokens = tokens_distribution(0.7, gamma=3) @ np.arange(1, 5)
    assert operations_factor(0.7, gamma=3, c_hat=0.25) == pytest.approx(per_round / tokens)


def test_limits():
    assert operations_factor(1.0, gamma=7, c_hat=0.5) == pytest.approx((7 * 0.5 + 8) / 8)
    assert operations_factor(0.0, gamma=7, c_hat=0.5) == pytest.approx(7 * 0.5 + 8)
    assert operations_factor(0.3, gamma=0, c_hat=0.5) == 1


def test_runs_of_the_target_shrink_by_the_expected_tokens():
    assert target_runs_factor(0.8, gamma=5) == pytest.approx(1 / expected_tokens(0.8, gamma=5))
    assert target_runs_factor(0.75, gamma=np.inf) == 0.25


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": 3, "c_hat": -0.1}, "c_hat is -0.1 and must be a number of at least 0"),
        ({"gamma": np.inf}, "gamma is inf and must be a whole number"),
    ],
)
def test_domain_errors(arguments, message):
    with pytest.raises(SpecdecError, match=message):
        operations_factor(0.5, **arguments)
