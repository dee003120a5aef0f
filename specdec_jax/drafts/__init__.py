"""Drafts: what guesses for the target."""

from specdec_jax.drafts.lookup import LookupDraft as LookupDraft
from specdec_jax.drafts.model import ModelDraft as ModelDraft
from specdec_jax.drafts.ngram import Continuations as Continuations
from specdec_jax.drafts.ngram import NGramDraft as NGramDraft
