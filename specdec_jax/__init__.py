"""Lossless speculative decoding for T5 in JAX.

Give it a target and a draft, get the target's own outputs in a fraction of the target's runs
(Leviathan, Kalman and Matias, arXiv:2211.17192). This module needs JAX alone: the loop works on any
model with the two verbs of `LanguageModel`. T5s, text and shipped models are in
`specdec_jax.generate`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec_jax.decoding import Decoded as Decoded
    from specdec_jax.decoding import Draft as Draft
    from specdec_jax.decoding import Finish as Finish
    from specdec_jax.decoding import LanguageModel as LanguageModel
    from specdec_jax.decoding import Options as Options
    from specdec_jax.decoding import autoregressive as autoregressive
    from specdec_jax.decoding import request as request
    from specdec_jax.decoding import speculative as speculative
    from specdec_jax.drafts import ModelDraft as ModelDraft
    from specdec_jax.drafts import NGramDraft as NGramDraft
    from specdec_jax.errors import SpecdecError as SpecdecError

__version__ = "0.1.0"

_HOMES = {
    "decoding": (
        *("Decoded", "Draft", "Finish", "LanguageModel", "Options"),
        *("autoregressive", "request", "speculative"),
    ),
    "drafts": ("ModelDraft", "NGramDraft"),
    "errors": ("SpecdecError",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: JAX takes seconds, and `inspect` needs none."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
