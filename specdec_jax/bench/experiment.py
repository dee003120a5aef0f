"""Many measurements from one file: pair x task x temperature x gamma x batch, a record for each."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from tqdm import tqdm

from specdec_jax import text
from specdec_jax.bench import compare
from specdec_jax.bench.demo import sentences
from specdec_jax.bench.record import provenance
from specdec_jax.errors import SpecdecError
from specdec_jax.files import write_json
from specdec_jax.generate import Pair, Settings, load_pair


@dataclasses.dataclass(frozen=True)
class Case:
    """One measurement.

    Attributes:
        task: a name that `specdec_jax.text.prefix` knows; its shipped sentences are decoded.
        target: a path or shipped name.
        draft: likewise, or one of the drafts without a network.
        shape: ``own``, or a preset to whose sizes the target is enlarged.
        temperature: of both models.
        gamma: guesses of a round.
        batch: lines decoded together.
        rule: how guesses are verified.
        lines: how many.
        repeats: decodes of each batch, each way.
        max_tokens: of an output.
        seed: of the samples.
    """

    task: str = "ende"
    target: str = "ende_target"
    draft: str = "ende_draft"
    shape: str = "base"
    temperature: float = 0.0
    gamma: int = 7
    batch: int = 1
    rule: str = "rejection"
    lines: int = 24
    repeats: int = 3
    max_tokens: int = 64
    seed: int = 0

    @property
    def name(self) -> str:
        """The record's name: what sets a case apart from others of a file."""
        draft = Path(self.draft).name
        name = f"{self.task}_{self.shape}_t{self.temperature:g}_{draft}_g{self.gamma}_b{self.batch}"
        return name if self.rule == "rejection" else f"{name}_{self.rule}"


FIELDS = {field.name: type(field.default) for field in dataclasses.fields(Case)}


def read_cases(path: Path) -> list[Case]:
    """Read a YAML file: a list of mappings from fields of `Case` to a value or a list of values.

    A mapping stands for all combinations of its lists; a field left out has its default.

    Raises:
        SpecdecError: for a file that is missing or says something else.
    """
    if not path.is_file():
        raise SpecdecError(f"There is no experiment at {path}; give a YAML file of cases.")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecdecError(f"{path} is no YAML ({error}); give a list of cases.") from error
    if not isinstance(content, list) or not content:
        raise SpecdecError(f"{path} holds no list of cases; begin each with `- task: ende`, say.")
    cases: dict[str, Case] = {}
    for entry in content:
        for case in _expand(entry, path):
            cases.setdefault(case.name, case)
    return list(cases.values())


def _expand(entry: Any, path: Path) -> Iterator[Case]:
    is_case = isinstance(entry, Mapping)
    unknown = sorted(set(entry) - set(FIELDS)) if is_case else []
    if not is_case or unknown:
        what = f"the field {unknown[0]!r}" if unknown else repr(entry)
        raise SpecdecError(
            f"{path} has {what}, but a case is a mapping with fields out of {', '.join(FIELDS)}."
        )
    lists = {key: value if isinstance(value, list) else [value] for key, value in entry.items()}
    for values in itertools.product(*lists.values()):
        found = {}
        for name, value in zip(lists, values, strict=True):
            wanted = FIELDS[name]
            # YAML's 1 is as good as 1.0.
            if wanted is float and type(value) is int:
                value = float(value)
            if type(value) is not wanted:
                raise SpecdecError(
                    f"{path} has {name}: {value!r}, but it must be of type {wanted.__name__}."
                )
            found[name] = value
        yield Case(**found)


def run(cases: Iterable[Case], out: Path, *, progress: bool = True) -> list[Path]:
    """Measure every case whose record is not there yet, and write it.

    Each pair is loaded once. A run that was stopped goes on where it was.

    Returns:
        The paths of all records, measured now or before.
    """
    out.mkdir(parents=True, exist_ok=True)
    paths, loaded = [], None
    by_pair = sorted(cases, key=lambda case: (case.target, case.shape, case.draft))
    bar = tqdm(by_pair, desc="cases", disable=not progress)
    for case in bar:
        bar.set_postfix_str(case.name)
        path = out / f"{case.name}.json"
        paths.append(path)
        if path.is_file():
            continue
        wanted = (case.target, case.draft, case.shape)
        if loaded is None or loaded[0] != wanted:
            loaded = None  # Two enlarged targets need not fit into memory.
            shape = None if case.shape == "own" else case.shape
            loaded = (wanted, load_pair(case.target, case.draft, shape=shape))
        write_json(path, {**measure(loaded[1], case, progress=progress), **provenance(case.seed)})
    return paths


def measure(pair: Pair, case: Case, *, progress: bool = True) -> dict[str, Any]:
    """Return a case's record, without where it comes from."""
    settings = Settings(
        gamma=case.gamma,
        temperature=case.temperature,
        batch_size=case.batch,
        rule=case.rule,
        max_tokens=case.max_tokens,
        seed=case.seed,
    )
    lines = [source for source, _ in sentences(case.task)][: case.lines]
    words = text.prefix(case.task)
    _, found = compare.measure(
        pair, lines, settings, prefix=words, repeats=case.repeats, progress=progress
    )
    return {**dataclasses.asdict(case), **found}
