"""Learning curves: what is drawn against what."""

import pytest

from specdec_jax.bench.training_curves import curves


def test_losses_and_scores_are_drawn_against_the_tokens_seen():
    logs = {
        "ende_target": [
            {"run": "target_1", "step": 5, "tokens": 2_000_000, "nll": 3.0},
            {"run": "target_2", "step": 5, "tokens": 1_000_000, "nll": 2.0, "bleu": 10.0},
            {"run": "target_2", "step": 9, "tokens": 1_000_000, "nll": 1.5, "bleu": 20.0},
        ],
        "ende_draft": [{"run": "draft", "step": 5, "tokens": 500_000, "nll": 1.0}],
    }
    figure = curves(logs, title="both")
    left, right = figure.axes
    target, draft = left.get_lines()
    assert target.get_xydata().tolist() == [[2.0, 3.0], [3.0, 2.0], [4.0, 1.5]]
    assert draft.get_xydata().tolist() == [[0.5, 1.0]]
    (scores,) = right.get_lines()
    assert scores.get_xydata().tolist() == [[3.0, 10.0], [4.0, 20.0]]
    assert right.get_ylabel().startswith("BLEU")
    assert left.get_title() == "both"


@pytest.mark.parametrize("name", ["bleu", "rouge_l"])
def test_without_scores_there_is_one_axis(name):
    log = [{"step": 1, "tokens": 1, "nll": 1.0}]
    assert len(curves({"a": log}, title="").axes) == 1
    assert len(curves({"a": [{**log[0], name: 1.0}]}, title="").axes) == 2
