import json

import pytest

from specdec_jax.bench import predict
from specdec_jax.errors import SpecdecError


def test_the_paper_s_small_draft():
    prediction = predict.report(alpha=0.75, c=0.02)
    best = prediction["best"]
    # Table 4's first row, with the gamma that suits it best.
    assert (best["gamma"], round(best["speedup"], 2)) == (9, 3.20)
    row = next(row for row in prediction["rows"] if row["gamma"] == 7)
    assert round(row["speedup"], 2) == 3.16
    assert row["low"] < row["speedup"] < row["high"]
    # Corollary 3.9: at v = 1 nothing pays below c, and gamma = 1 pays above.
    assert prediction["break_even_alpha"] == pytest.approx(0.02, rel=1e-9)


def test_the_band_is_the_gain_at_the_far_ends():
    row = predict.report(alpha=0.5, c=0.1, alpha_error=0.1, c_error=0.05, max_gamma=1)["rows"][0]
    assert row["gamma"] == 1
    assert row["low"] == pytest.approx(1.4 / 1.15)
    assert row["high"] == pytest.approx(1.6 / 1.05)
    certain = predict.report(alpha=1.0, c=0.0, alpha_error=0.1, max_gamma=3)["best"]
    assert certain["high"] == certain["speedup"] == 4


def test_operations_take_c_hat_or_c():
    # gamma = 1, alpha = 1/2: (c_hat + 2) / 1.5.
    (row,) = predict.report(alpha=0.5, c=0.1, max_gamma=1)["rows"]
    assert row["operations"] == pytest.approx(2.1 / 1.5)
    (row,) = predict.report(alpha=0.5, c=0.1, c_hat=0.4, max_gamma=1)["rows"]
    assert row["operations"] == pytest.approx(2.4 / 1.5)


def test_measured_costs_of_verification_shorten_the_draft():
    free = predict.report(alpha=0.8, c=0.05)
    costly = predict.report(alpha=0.8, c=0.05, v={4: 1.5, 8: 2.5})
    assert (free["best"]["gamma"], costly["best"]["gamma"]) == (8, 3)
    # 1 + .8 + .64 + .512 tokens over three draft steps and a call of four tokens.
    assert costly["best"]["speedup"] == pytest.approx(2.952 / (3 * 0.05 + 1.5))
    assert costly["break_even_alpha"] > free["break_even_alpha"]
    one = predict.report(alpha=0.8, c=0.05, v=1.5)["rows"][0]
    assert one["speedup"] == pytest.approx(1.8 / 1.55)


def test_a_prediction_survives_json_with_its_call_lengths():
    record = json.loads(json.dumps({"alpha": 0.8, "c": 0.05, "v": {4: 1.5, 8: 2.5}, "tokens": 9}))
    prediction = predict.report(**predict.from_record(record))
    assert prediction["best"]["gamma"] == 3
    assert json.loads(json.dumps(prediction)) == prediction


def test_a_measured_v_is_that_of_the_run_s_own_calls():
    record = {"alpha": 0.8, "c": 0.05, "v": 1.5, "gamma": 3, "speedup": 1.7}
    assert predict.from_record(record)["v"] == {4: 1.5}
    # Without the gamma it was measured at, it has to stand for every call.
    assert predict.from_record(record | {"gamma": None})["v"] == 1.5


def test_the_band_of_a_measured_c_comes_from_its_quartiles():
    steps = {
        "draft_step": {"median": 0.004, "low": 0.003, "high": 0.005},
        "target_step": {"median": 0.080, "low": 0.076, "high": 0.084},
    }
    record = {"alpha": 0.8, "c": 0.05, "step_seconds": steps}
    # A quarter and a twentieth.
    assert predict.from_record(record)["c_error"] == pytest.approx(0.05 * 0.3)
    assert predict.from_record(record | {"c_error": 0.01})["c_error"] == 0.01


def test_where_nothing_pays_plain_decoding_is_best():
    # Plain decoding makes no verifying call, so their cost leaves its row alone.
    prediction = predict.report(alpha=0.2, c=0.5, v=1.5)
    assert prediction["best"]["gamma"] == 0
    assert prediction["best"]["speedup"] == 1
    assert "No gamma pays: decode with the target alone." in predict.render(prediction)
    hopeless = predict.report(alpha=0.9, c=1.0, v=3.0)
    assert hopeless["break_even_alpha"] is None
    assert "No alpha pays" in predict.render(hopeless)


def test_two_checkpoints_alone_give_a_table_over_alpha():
    costs = predict.estimate_costs(77e6, target_bytes=11e9, device="tpu-v5e")
    prediction = predict.report(costs=costs)
    assert prediction["best"] is None
    assert [row["alpha"] for row in prediction["rows"]] == [0.5, 0.6, 0.7, 0.8, 0.9]
    speedups = [row["speedup"] for row in prediction["rows"]]
    assert speedups == sorted(speedups)
    text = predict.render(prediction)
    assert "tpu-v5e" in text
    assert "by bandwidth alone" in text
    # One alpha, its best gamma and the ratio of the weights: Theorem 3.11.
    row, ratio = prediction["rows"][0], 77e6 / 11e9
    one = row["gamma"] * ratio + row["gamma"] + 1
    assert row["operations"] == pytest.approx(one / row["tokens"])
    # A measured c goes before an estimated one.
    assert predict.report(c=0.3, costs=costs)["c"] == 0.3


def test_the_text_marks_the_best_row_and_states_every_number():
    lines = predict.render(predict.report(alpha=0.75, c=0.02, v={4: 1.26})).splitlines()
    (best,) = [line for line in lines if line.endswith("<- best")]
    assert best.split()[:2] == ["0.75", "5"]
    assert "v      4 tokens 1.26, a verifying call over a target step" in lines
    assert "alpha  0.75 (give or take 0.02)" in lines
    assert "c      0.02 (0.016 to 0.024), a draft step over a target step" in lines


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: predict.report(alpha=0.5), "neither c nor an estimate of it is given"),
        (lambda: predict.report(alpha=1.5, c=0.1), "alpha is 1.5 and must be"),
        (lambda: predict.report(alpha=0.5, c=-0.1), "c is -0.1 and must be"),
        (lambda: predict.report(alpha=0.5, c=0.1, v=0.0), "v is 0 and must be"),
        (lambda: predict.report(alpha=0.5, c=0.1, alpha_error=-0.1), "alpha_error is -0.1"),
        (lambda: predict.report(alpha=0.5, c=0.1, max_gamma=0), "max_gamma is 0 and must be"),
        (lambda: predict.from_record({"v": 1.2}), "lacks alpha and c"),
        (lambda: predict.from_record({"alpha": 0.5, "c": None}), "lacks c,"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(SpecdecError) as error:
        call()
    assert message in str(error.value)
