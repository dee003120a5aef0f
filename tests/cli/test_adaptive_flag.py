"""`generate --adaptive`: gamma left to each batch, by the costs of a record."""

import json

import pytest

LINES = ["ab", "", "x y z"]
TUNED = {"c": 0.05, "v": {"2": 1.1, "3": 1.2}}
BENCHED = {"c": 0.05, "v": 1.2, "gamma": 2}
# Where none was accepted before, none is guessed.
USELESS = {**TUNED, "alpha": 0.0}
# At these costs no guess can pay.
DEAR = {"c": 9.0, "v": {"2": 1.1}}


def decoded(out):
    return [json.loads(line) for line in out.splitlines()]


def test_outputs_are_those_of_the_target_and_costs_decide_what_is_guessed(tiny, tmp_path):
    status, plain, err = tiny("--baseline", "--json", *LINES)
    assert (status, err) == (0, "")
    drafted = []
    for number, record in enumerate((TUNED, BENCHED, DEAR, USELESS)):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(record))
        status, out, err = tiny("--adaptive", path, "--json", *LINES)
        assert (status, err) == (0, "")
        found = decoded(out)
        assert [each["tokens"] for each in found] == [each["tokens"] for each in decoded(plain)]
        drafted.append(sum(each["drafted"] for each in found))
    assert drafted[0] > 0
    assert drafted[1] > 0
    assert drafted[2:] == [0, 0]


@pytest.mark.parametrize("record", [{}, {"c": 0.1}, {"c": 0.1, "v": 1.2}, [1]])
def test_a_record_without_costs_is_refused(tiny, tmp_path, unloaded, record):
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    status, _, err = tiny("--adaptive", path, "ab")
    assert status == 2
    assert f"{path} does not say what a round costs" in err
