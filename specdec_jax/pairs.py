"""A target, a draft and their vocabulary, found by name and made ready for this machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from specdec_jax import checkpoints, text
from specdec_jax.decoding import Draft
from specdec_jax.drafts import LookupDraft, ModelDraft, NGramDraft, ngram_file
from specdec_jax.errors import SpecdecError
from specdec_jax.t5 import T5, MeshedT5, prepare, preset, shard
from specdec_jax.t5.expand import expand

DEFAULT_TARGET = "ende_target"
DEFAULT_DRAFT = "ende_draft"


@dataclasses.dataclass(frozen=True)
class Pair:
    """A target, its draft (None for plain decoding) and their common vocabulary."""

    target: T5 | MeshedT5
    draft: Draft | None
    vocabulary: text.AnyVocabulary
    target_shape: str
    """The target's sizes, and its own ones where it was enlarged."""
    draft_shape: str | None
    """The draft's sizes, or its name where it is no model."""
    mesh: Mesh | None = None
    """Where both lie, when on several devices."""

    @property
    def enlarged(self) -> bool:
        """Whether the target is a small model rewritten with the shapes of a large one."""
        return "enlarged" in self.target_shape


def load_pair(
    target: str = DEFAULT_TARGET,
    draft: str | None = DEFAULT_DRAFT,
    *,
    shape: str | None = None,
    mesh: Mesh | None = None,
) -> Pair:
    """Load a target and a draft, each a path or the name of a shipped model.

    Args:
        target: the model to be decoded.
        draft: what guesses, see `load_draft`; None for plain decoding.
        shape: a preset (``base``, say) to whose sizes the target is enlarged, at unchanged outputs:
            for measuring what a large target would gain.
        mesh: from `specdec_jax.t5.make_mesh`, to split the models and the rows of a batch over
            several devices; a draft that does not divide is replicated.

    Raises:
        SpecdecError: for a path without a model, or models with different vocabularies.
    """
    loaded = checkpoints.load(target)
    model, vocabulary = loaded.model, _vocabulary(loaded, target)
    described = model.config.describe()
    if shape is not None:
        wanted = preset(shape, vocab_size=max(preset(shape).vocab_size, model.config.vocab_size))
        model = expand(model, wanted)
        described = f"{model.config.describe()} (enlarged from {described})"
    guesser, draft_described = None, None
    if draft is not None:
        guesser, draft_described = load_draft(draft, vocabulary, mesh=mesh)
    model = _placed(dataclasses.replace(model, vocab_size=vocabulary.size), mesh)
    return Pair(model, guesser, vocabulary, described, draft_described, mesh)


def _placed(model: T5, mesh: Mesh | None) -> T5 | MeshedT5:
    return prepare(model) if mesh is None else shard(prepare(model), mesh)


def _everywhere(tables: NGramDraft, mesh: Mesh | None) -> NGramDraft:
    """Put tables, which are small, on all devices whole."""
    return tables if mesh is None else jax.device_put(tables, NamedSharding(mesh, PartitionSpec()))


def load_draft(
    name: str, vocabulary: text.AnyVocabulary, *, mesh: Mesh | None = None
) -> tuple[Draft, str]:
    """Load what guesses for a target.

    Args:
        name: a path or the name of a shipped model; or a draft without a network: the file of
            n-grams that `specdec count` wrote, ``uniform``, which guesses at random, or ``lookup``,
            which copies from the source and the text so far. ``lookup+NAME`` copies where it can
            and asks the draft NAME elsewhere.
        vocabulary: the target's.
        mesh: see `load_pair`.

    Returns:
        The draft, and its sizes or, where it has none, its name.

    Raises:
        SpecdecError: for a path without a draft, or one of another vocabulary.
    """
    if name == "uniform":
        return _everywhere(NGramDraft.uniform(vocabulary.size), mesh), name
    first, plus, rest = name.partition("+")
    if first == "lookup":
        otherwise, described = load_draft(rest if plus else "uniform", vocabulary, mesh=mesh)
        return LookupDraft(otherwise), f"{first}+{described}" if plus else first
    if Path(name).is_file():
        tables = ngram_file.read(name)
        if tables.vocabulary != text.fingerprint(vocabulary):
            raise SpecdecError(
                f"The n-grams of {name} are of another vocabulary ({tables.draft.vocab_size} ids) "
                f"than the target's ({vocabulary.size} ids): count them anew, with `specdec count` "
                "and this target."
            )
        return _everywhere(tables.draft, mesh), tables.draft.describe()
    loaded = checkpoints.load(name)
    text.same_vocabulary(vocabulary, _vocabulary(loaded, name))
    model = dataclasses.replace(loaded.model, vocab_size=vocabulary.size)
    return ModelDraft(_placed(model, mesh)), loaded.model.config.describe()


def _vocabulary(loaded: checkpoints.Loaded, name: str) -> text.AnyVocabulary:
    if loaded.byte_vocabulary:
        return text.ByteVocabulary()
    if loaded.vocabulary_path is None:
        raise SpecdecError(
            f"There is no vocabulary with {name}; "
            "put its sentencepiece model (spiece.model) into the folder."
        )
    return text.Vocabulary(loaded.vocabulary_path)
