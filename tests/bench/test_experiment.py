"""Experiments of many cases: what a file says, and records that are not made twice."""

import json
import re

import pytest

from specdec_jax.bench import experiment, summary
from specdec_jax.bench.experiment import Case, read_cases
from specdec_jax.cli import parser
from specdec_jax.errors import SpecdecError


def written(tmp_path, text):
    path = tmp_path / "cases.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_lists_stand_for_all_their_combinations(tmp_path):
    text = "- {shape: [base, large], temperature: [0, 1.0], gamma: 3}\n- {shape: base, gamma: 3}\n"
    cases = read_cases(written(tmp_path, text))
    assert cases == [
        Case(shape=shape, temperature=temperature, gamma=3)
        for shape in ("base", "large")
        for temperature in (0.0, 1.0)
    ]
    assert cases[1].name == "ende_base_t1_ende_draft_g3_b1"
    assert Case(rule="block").name == "ende_base_t0_ende_draft_g7_b1_block"
    assert len({case.name for case in cases}) == 4


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- {gama: 3}", "has the field 'gama', but a case is a mapping with fields out of task,"),
        ("- {gamma: x}", "has gamma: 'x', but it must be of type int"),
        ("- base", "has 'base', but a case is a mapping"),
        ("{gamma: 3}", "holds no list of cases"),
        ("- {", "is no YAML"),
    ],
)
def test_what_is_no_experiment_is_told(tmp_path, text, told):
    with pytest.raises(SpecdecError, match=re.escape(told)):
        read_cases(written(tmp_path, text))
    with pytest.raises(SpecdecError, match="There is no experiment at"):
        read_cases(tmp_path / "none.yaml")


def test_the_published_experiment_is_one():
    cases = read_cases(experiment.Path(__file__).parents[2] / "results/cpu/experiment.yaml")
    assert len(cases) > 20
    assert {case.task for case in cases} == {"ende", "summarize"}


def test_a_run_goes_on_where_it_was(tmp_path, monkeypatch):
    loaded, measured = [], []
    monkeypatch.setattr(
        experiment, "load_pair", lambda target, draft, shape: loaded.append((draft, shape))
    )
    monkeypatch.setattr(
        experiment, "measure", lambda pair, case, progress: measured.append(case) or {"n": 1}
    )
    cases = [Case(gamma=gamma, draft=draft) for draft in ("a", "b") for gamma in (1, 3)]
    out = tmp_path / "out"
    out.mkdir()
    (out / f"{cases[1].name}.json").write_text('{"n": 2}')
    paths = experiment.run(cases, out, progress=False)
    assert measured == [cases[0], *cases[2:]]
    # Each pair once.
    assert loaded == [("a", "base"), ("b", "base")]
    assert [json.loads(path.read_text())["n"] for path in paths] == [1, 2, 1, 1]
    assert experiment.run(cases, out, progress=False) == paths
    assert len(measured) == 3


def record(gamma=7, batch=1, **more):
    case = {"task": "ende", "shape": "base", "temperature": 0.0, "draft": "d", "gamma": gamma}
    found = {"alpha": 0.8, "c": 0.01, "v": 1.5, "identical": 24, "sentences": 24}
    speed = {"predicted_speedup": 2.5, "speedup_decoding": 2.0}
    return {**case, "batch": batch, **found, **speed, **more}


def beside(gamma=7, **ways):
    same = {key: record(gamma)[key] for key in summary.KEYS}
    ratios = {"plain": 1.2, "speculative": 3.0, **ways}
    return {**same, "over_t5x": ratios, "sentences": 24, "identical": dict.fromkeys(ratios, 24)}


def test_rows_join_what_was_measured_of_one_case():
    found = summary.rows_of(
        [
            *(record(), beside(hf_assisted=0.5), record(3, speedup_decoding=None), {"other": 1}),
            record(5, rule="block"),
        ]
    )
    assert [row["gamma"] for row in found] == [3, 7]
    assert all(tuple(row) == summary.COLUMNS for row in found)
    assert found[0]["emp"] is found[0]["emp_over_exp"] is found[0]["plain_over_t5x"] is None
    row = found[1]
    assert (row["exp"], row["emp"], row["emp_over_exp"]) == (2.5, 2.0, 0.8)
    assert (row["identical"], row["rows"]) == (24, 24)
    assert (row["plain_over_t5x"], row["speculative_over_hf_assisted"]) == (1.2, 6.0)
    assert "| ende | base | 0 | d | 7 | 1 | 0.80 | 0.010 | 1.50 | 2.50 | 2.00 |" in summary.table(
        found
    )


def test_decoders_stand_side_by_side():
    other = beside(3, hf=0.5)
    other["identical"]["hf"] = 23
    lines = summary.peers_table([beside(), {"other": 1}, other]).splitlines()
    assert lines[0].endswith("| gamma | batch | lines | plain | speculative | hf |")
    assert lines[2].endswith("| 3 | 1 | 24 | 1.20 | 3.00 | 0.50 (23 of 24 identical) |")
    assert lines[3].endswith("| 7 | 1 | 24 | 1.20 | 3.00 |  |")


def test_a_folder_gets_its_summary_and_figures(tmp_path):
    for gamma in (1, 3, 7):
        (tmp_path / f"g{gamma}.json").write_text(json.dumps(record(gamma)))
    (tmp_path / "t5x.json").write_text(json.dumps(beside()))
    for _ in range(2):  # Its own summary is no record.
        rows = json.loads(summary.write(tmp_path).read_text())
        assert [row["gamma"] for row in rows] == [1, 3, 7]
        assert rows[2]["speculative_over_t5x"] == 3.0
    assert (tmp_path / "speedup_by_gamma.png").stat().st_size > 5000
    assert (tmp_path / "table.md").read_text().count("\n") == 5


@pytest.mark.parametrize(
    ("arguments", "told"), [([], "required: --json FILE"), (["cases.yaml"], "give --out FOLDER")]
)
def test_bench_says_where_its_records_go(arguments, told):
    asked = parser().parse_args(["bench", *arguments])
    with pytest.raises(SpecdecError, match=told):
        asked.command(asked)
