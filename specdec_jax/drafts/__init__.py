"""Drafts: what guesses for the target."""

from specdec_jax.drafts.model import ModelDraft as ModelDraft
from specdec_jax.drafts.uniform import UniformDraft as UniformDraft
