"""Mathematics on arrays: distributions, acceptance, overlap. No model, no loop."""

from specdec_jax.sampling.acceptance import RULES as RULES
from specdec_jax.sampling.acceptance import Rule as Rule
from specdec_jax.sampling.acceptance import Verdict as Verdict
from specdec_jax.sampling.acceptance import accept_block as accept_block
from specdec_jax.sampling.acceptance import check_rule as check_rule
from specdec_jax.sampling.acceptance import match as match
from specdec_jax.sampling.acceptance import reject as reject
from specdec_jax.sampling.acceptance import residual as residual
from specdec_jax.sampling.distributions import GREEDY_TEMPERATURE as GREEDY_TEMPERATURE
from specdec_jax.sampling.distributions import Sampling as Sampling
from specdec_jax.sampling.distributions import adjust as adjust
from specdec_jax.sampling.distributions import argmax as argmax
from specdec_jax.sampling.distributions import draw as draw
from specdec_jax.sampling.distributions import sampling as sampling
from specdec_jax.sampling.distributions import standardize as standardize
from specdec_jax.sampling.overlap import alpha as alpha
from specdec_jax.sampling.overlap import divergence as divergence
from specdec_jax.sampling.overlap import overlap as overlap
