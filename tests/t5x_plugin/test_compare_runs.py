"""Two runs side by side, from the files that T5X's infer leaves behind."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.checkpoints import load
from specdec_jax.errors import SpecdecError
from specdec_jax.t5x_plugin import compare
from specdec_jax.t5x_plugin.margins import first_difference, margins
from specdec_jax.text import Vocabulary

CONFIG = """
DTYPE = 'float32'
TASK_FEATURE_LENGTHS = {'inputs': 16, 'targets': 8}
TEMPERATURE = 0.0
"""
TEXT = "translate English to German: a file"


def write(folder, decodes, texts=None):
    """Write a run of as many chunks as rows; each took as many seconds as its number."""
    folder.mkdir()
    lines = []
    for text, tokens in zip(texts or [TEXT] * len(decodes), decodes, strict=True):
        aux = {"target_runs": 2, "mean_accepted_length": len(tokens) / 2}
        row = {"inputs": {"inputs_pretokenized": text}, "prediction_tokens": tokens, "aux": aux}
        lines.append(json.dumps(row) + "\n")
    (folder / "task-predict_with_aux.jsonl-00000-of-00001").write_text("".join(lines))
    (folder / "task-predict_with_aux.jsonl-00000-of-00001.COMPLETED").touch()
    log = [f"chunk completed in {i}.5 seconds (1.0 examples/sec)\n" for i in range(len(decodes))]
    (folder / "log").write_text("".join(log))
    (folder / "config.gin").write_text(CONFIG)
    return folder


def largest(count):
    """The ids of the target's largest first logits, and those logits, for TEXT."""
    loaded = load("ende_target")
    source = [*Vocabulary(loaded.vocabulary_path).encode(TEXT)[:15], 1]
    state = loaded.model.start(jnp.array([source]), 4)
    begin = jnp.zeros((1, 1), jnp.int32)
    logits, _ = loaded.model.extend(state, begin, begin[0])
    logits = np.asarray(logits[0, 0])
    order = np.argsort(logits)[::-1][:count]
    return order.tolist(), logits[order]


def test_rows_times_and_tokens_for_each_run(tmp_path):
    plain = write(tmp_path / "plain", [[5, 1], [6, 7, 8, 1], [9, 1]])
    other = write(tmp_path / "other", [[5, 1], [6, 7, 8, 1], [4, 3, 2, 1]])
    assert compare.compare(plain, other) == {
        "rows": 3,
        "identical": 2,
        "seconds_plain": 4.0,  # 1.5 + 2.5: the first chunk compiles
        "seconds_speculative": 4.0,
        "tokens_per_run": 10 / 6,
    }
    assert compare.compare(plain, plain, "ende_target")["differing"] == []


def test_a_row_that_differs_is_told_with_its_margin(tmp_path, capsys):
    (first, second), logits = largest(2)
    plain = write(tmp_path / "plain", [[7, 1], [first, 1]])
    other = write(tmp_path / "other", [[7, 1], [second, 1]])
    said = tmp_path / "said.json"
    command = [str(plain), str(other), "--target", "ende_target", "--json", str(said)]
    assert compare.main(command) == 1
    (row,) = json.loads(said.read_text())["differing"]
    # A block of one token and a cached one: other products of numbers of order 10.
    close = pytest.approx(float(logits[0] - logits[1]), abs=1e-3)
    assert row == {
        "row": 1,
        "position": 0,
        "plain_token": first,
        "speculative_token": second,
        "margin": close,
        "between": close,
    }
    assert "identical 1/2" in (out := capsys.readouterr().out)
    assert "row 1 differs from token 0 on" in out


def test_tokens_beside_the_two_largest_show_a_fault():
    (first, _, third), logits = largest(3)
    (row,) = margins("ende_target", "float32", [TEXT], [[first]], [[third]], length=16)
    assert row["margin"] == pytest.approx(float(logits[0] - logits[1]), abs=1e-3)
    assert row["between"] == pytest.approx(float(logits[0] - logits[2]), abs=1e-3)


def test_where_two_rows_part():
    assert first_difference([3, 4, 1], [3, 4, 1]) is None
    assert first_difference([3, 4, 1], [3, 5, 1]) == 1
    assert first_difference([3, 4], [3, 4, 1]) == 2


def test_runs_that_cannot_be_compared(tmp_path, capsys):
    plain = write(tmp_path / "plain", [[5, 1]])
    other = write(tmp_path / "other", [[5, 1]], texts=["something else"])
    with pytest.raises(SpecdecError, match="of other inputs: compare two runs of one task"):
        compare.compare(plain, other)
    with pytest.raises(SpecdecError, match=r"has no GAMMA: compare runs of gin_configs/runs"):
        compare.macro(plain, "GAMMA")
    (tmp_path / "empty").mkdir()
    assert compare.main([str(tmp_path / "empty"), str(plain)]) == 2
    assert "has 0 files *.jsonl-*, but a run writes one" in capsys.readouterr().err
