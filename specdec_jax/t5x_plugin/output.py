"""What `t5x.infer` writes: whole or not at all, with the throughput and the time left.

T5X decodes chunks of `infer.checkpoint_period` batches, each a file with a mark beside it that
says it is complete, and joins them at the end. With `infer.checkpoint_ds_iter = False`, as in the
gin files of this repository, a run that is started again leaves out exactly the chunks with a mark.
Two instants remain at which it may be killed: while it joins them, and while it deletes them.
`join` is for these.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import seqio
from absl import logging
from t5x import utils
from tensorflow.io import gfile

from specdec_jax.errors import SpecdecError

_CHUNK = re.compile(
    r"(?P<task>.+)-(?:predict|predict_with_aux|score)\.\w+-\d+-of-(?P<shards>\d+)-chunk(?P<number>\d+)"
)


class Writer:
    """T5X's `write_fn`, which then tells how far the run is; the first process alone calls it."""

    def __init__(
        self,
        dataset_cfg: utils.DatasetConfig,
        write_fn: Callable[..., None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Take what `infer` is given.

        Args:
            dataset_cfg: whose lines are counted, for the time left.
            write_fn: writes one chunk, T5X's `write_inferences_to_file` say.
            clock: in seconds.
        """
        self._dataset, self._write, self._clock = dataset_cfg, write_fn, clock
        self._counts: dict[str, int] = {}
        self._lines, self._since = 0, clock()
        self._size: int | None = None
        """Lines of a chunk, of which only the last may have fewer."""

    def __call__(self, path: str, inferences: Any, *rest: Any, **named: Any) -> None:
        """Write a chunk.

        Args:
            path: of its file, T5X's name for it.
            inferences: (predictions, values beside them), one each a line.
            *rest: of `write_fn`.
            **named: of `write_fn`.
        """
        self._write(path, inferences, *rest, **named)
        logging.info("%s", self._told(path, len(inferences[0])))

    def _told(self, path: str, lines: int) -> str:
        chunk = _CHUNK.fullmatch(PurePosixPath(path).name)
        if chunk is None:
            raise SpecdecError(f"{path} is no name that T5X gives to a chunk of its output.")
        self._lines += lines
        rate = self._lines / max(self._clock() - self._since, 1e-9)
        if self._size is None:
            number = chunk["number"]
            with gfile.GFile(path.removesuffix(number) + "0" * len(number)) as first:
                self._size = sum(1 for _ in first)
            # The first chunk took the compilation too, and says little of the others.
            self._lines, self._since = 0, self._clock()
        total = -(-self._count(chunk["task"]) // int(chunk["shards"]))
        done = min(int(chunk["number"]) * self._size + lines, total)
        left = datetime.timedelta(seconds=round((total - done) / rate))
        return f"{chunk['task']}: {done} of {total} lines, {rate:.1f} a second, {left} left"

    def _count(self, name: str) -> int:
        """Return the lines of a task's split, before the task's own steps leave any out."""
        if name not in self._counts:
            given = self._dataset
            provider = seqio.maybe_get_mixture_or_task(given.mixture_or_task_name)
            (task,) = (t for t in seqio.get_subtasks(provider) if t.name == name)
            lines = task.source.get_dataset(split=given.split, shuffle=False)
            known = int(lines.cardinality())
            self._counts[name] = known if known >= 0 else sum(1 for _ in lines)
        return self._counts[name]


def join(
    output_dir: str,
    output_fname: str,
    tmp_dir: str,
    step: int | None,
    *,
    merge_fn: Callable[[str, str, str, int | None], None],
) -> None:
    """T5X's `merge_fn`, after which the output is complete: its name and its mark come last.

    T5X itself writes under the output's own name, then deletes the chunks, and sets the mark only
    then; killed before, it would begin anew.

    Args:
        output_dir: gets the output.
        output_fname: its name.
        tmp_dir: has the chunks.
        step: of the checkpoint.
        merge_fn: joins the chunks of `tmp_dir`, T5X's `merge_chunks_to_file` say.
    """
    merge_fn(tmp_dir, output_fname, tmp_dir, step)
    # By joining of texts, since a folder may be a bucket's.
    output = f"{output_dir}/{output_fname}"
    gfile.rename(f"{tmp_dir}/{output_fname}", output, overwrite=True)
    with gfile.GFile(f"{output}.COMPLETED", "w") as mark:
        mark.write("")
