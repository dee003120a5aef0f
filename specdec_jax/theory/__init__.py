"""The closed forms of the paper (arXiv:2211.17192, sections 3 and A), on numbers and arrays.

======== ==================================================================================
symbol   meaning
======== ==================================================================================
alpha    mean acceptance probability of one drafted token, in [0, 1]
beta     acceptance probability at one position, in [0, 1]; alpha = E(beta)
gamma    tokens drafted per round, a whole number >= 0; 0 is plain decoding
c        time of one draft step / time of one target step, >= 0 (Definition 3.7)
c_hat    arithmetic operations per token, draft / target, >= 0 (Definition 3.10)
v        time of the target's verifying call of gamma + 1 tokens / time of one target step
         of one token, > 0; the paper assumes 1
lenience l in [0, 1]; 1 is exact (section A.5)
======== ==================================================================================

Every function takes Python numbers, NumPy arrays or JAX arrays, which broadcast together. JAX in
means JAX out, in JAX's default float type; all else is computed in float64, and scalars in means a
scalar out. A number outside its range raises `SpecdecError`; under a JAX transformation values are
unknown and ranges go unchecked.

Definition 3.1 to Corollary 3.6, alpha from the distributions themselves, are
`specdec_jax.sampling.overlap`.
"""

from specdec_jax.theory.expected import (
    alpha_from_tokens,
    expected_tokens,
    expected_tokens_from_betas,
    tokens_distribution,
)
from specdec_jax.theory.lenience import (
    argmax_lenience_accepts,
    lenient_alpha,
    rejection_sampling_acceptance,
)
from specdec_jax.theory.operations import operations_factor, target_runs_factor
from specdec_jax.theory.walltime import (
    break_even_alpha,
    cost_ratio,
    guaranteed_improvement,
    optimal_gamma,
    oracle_improvement,
    verify_cost,
    walltime_improvement,
    walltime_improvement_from_tokens,
)

__all__ = [
    "alpha_from_tokens",
    "argmax_lenience_accepts",
    "break_even_alpha",
    "cost_ratio",
    "expected_tokens",
    "expected_tokens_from_betas",
    "guaranteed_improvement",
    "lenient_alpha",
    "operations_factor",
    "optimal_gamma",
    "oracle_improvement",
    "rejection_sampling_acceptance",
    "target_runs_factor",
    "tokens_distribution",
    "verify_cost",
    "walltime_improvement",
    "walltime_improvement_from_tokens",
]
