"""The loop over an abstract language model."""

from specdec_jax.decoding.adaptive import Pace as Pace
from specdec_jax.decoding.adaptive import pace as pace
from specdec_jax.decoding.autoregressive import autoregressive as autoregressive
from specdec_jax.decoding.contract import Choose as Choose
from specdec_jax.decoding.contract import Draft as Draft
from specdec_jax.decoding.contract import LanguageModel as LanguageModel
from specdec_jax.decoding.contract import Proposal as Proposal
from specdec_jax.decoding.outcome import Counters as Counters
from specdec_jax.decoding.outcome import Decoded as Decoded
from specdec_jax.decoding.outcome import Finish as Finish
from specdec_jax.decoding.outcome import Rounds as Rounds
from specdec_jax.decoding.outcome import require_finite as require_finite
from specdec_jax.decoding.randomness import Noise as Noise
from specdec_jax.decoding.randomness import RowNoise as RowNoise
from specdec_jax.decoding.request import Options as Options
from specdec_jax.decoding.request import Request as Request
from specdec_jax.decoding.request import request as request
from specdec_jax.decoding.speculative import speculative as speculative
