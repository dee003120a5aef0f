from itertools import pairwise

import pytest

from specdec_jax.bench import trace_figures
from specdec_jax.errors import SpecdecError


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_each_token_gets_its_fate_in_the_order_of_reading(trace):
    laid = [(chip.line, chip.text, chip.fate) for chip in trace_figures.chips(trace)]
    assert laid == [
        (0, "Die", "accepted"),
        (0, "Hund", "rejected"),
        (0, "Katze", "own"),
        (1, "sitz", "accepted"),
        (1, "t", "accepted"),
        (1, "auf", "own"),
        (2, "dem", "rejected"),
        (2, "der", "own"),
        (2, "Dach", "unread"),
        (3, "Matte", "accepted"),
        (3, ".", "accepted"),
    ]


def test_chips_neither_overlap_nor_leave_the_page(trace):
    trace["rounds"] = [
        {"drafted": ["▁Donaudampfschifffahrt"] * 7, "accepted": 7, "extra": "▁kapitän"}
    ]
    laid = trace_figures.chips(trace)
    assert laid[-1].line == 2
    for before, after in pairwise(laid):
        assert after.line > before.line or after.column > before.column + len(before.text)
    assert max(chip.column + len(chip.text) for chip in laid) <= 76


def test_a_word_stands_apart_and_its_continuation_does_not(trace):
    _, _, _, word, rest, following, *_ = trace_figures.chips(trace)
    assert rest.column - (word.column + len(word.text)) == 0.25
    assert following.column - (rest.column + len(rest.text)) == 1


def test_calls_follow_each_other_as_they_were_made(trace):
    made = trace_figures.calls(trace)
    one_round = ["draft decoder", "draft decoder", "target decoder"]
    assert [call.kind for call in made] == ["target encoder", "draft encoder", *one_round * 4]
    for before, after in pairwise(made):
        assert after.start == pytest.approx(before.start + before.length)
    end = made[-1].start + made[-1].length
    assert end == pytest.approx(0.030 + 0.005 + 4 * (2 * 0.004 + 0.060))


def test_plain_decoding_takes_steps_and_no_draft(plain_trace):
    made = trace_figures.calls(plain_trace)
    assert [call.kind for call in made] == ["target encoder"] + ["target decoder"] * 8
    assert made[-1].length == 0.050


def test_the_token_figure_says_what_happened(trace):
    words = texts(trace_figures.token_figure(trace))
    assert words[-3].startswith("8 tokens in 4 runs of the target, 2.00 per run; ")
    assert words[-2:] == ["target large", "draft small"]
    assert [word for word in words if word.endswith("of 2")] == [
        "1 of 2",
        "2 of 2",
        "0 of 2",
        "2 of 2",
    ]
    assert words.count("Katze") == 1


def test_rounds_beyond_the_page_are_counted(trace):
    words = texts(trace_figures.token_figure(trace, max_lines=3))
    assert "… and 1 more runs" in words
    assert "Matte" not in words
    assert "8 tokens in 4 runs" in words[-3]


def test_the_call_figure_draws_every_call_of_every_run(trace, plain_trace):
    figure = trace_figures.call_figure([plain_trace, trace])
    (axes,) = figure.axes
    assert len(axes.patches) == (2 + 3 * 4) + (1 + 8)
    assert [label.get_text() for label in axes.get_yticklabels()] == [r"$\gamma$ = 2", "plain"]
    assert texts(figure) == ["307 ms\n8 tokens, 4 runs", "430 ms\n8 tokens, 8 runs"]
    key = [text.get_text() for text in figure.legends[0].get_texts()]
    assert key[1] == "target decoder\n50 to 60 ms"
    assert key[3] == "draft decoder\n4 ms each"
    # Every note lies within the drawn width.
    figure.canvas.draw()
    right = axes.get_window_extent().x1
    assert all(text.get_window_extent().x1 <= right for text in axes.texts)


def test_a_trace_that_is_none_is_refused(trace, plain_trace):
    with pytest.raises(SpecdecError, match="gamma = 0, and figure 1 shows drafts"):
        trace_figures.token_figure(plain_trace)
    with pytest.raises(SpecdecError, match="there is no trace to draw"):
        trace_figures.call_figure([])
    with pytest.raises(SpecdecError, match="2 different sources"):
        trace_figures.call_figure([trace, plain_trace | {"source": "A dog."}])
    with pytest.raises(SpecdecError, match="the trace lacks rounds"):
        trace_figures.check_trace({k: v for k, v in trace.items() if k != "rounds"})
    del trace["seconds"]["verify"]
    with pytest.raises(SpecdecError, match="the trace's seconds lacks verify"):
        trace_figures.check_trace(trace)


@pytest.mark.parametrize("change", [{"accepted": 3}, {"drafted": ["▁a"] * 3}])
def test_a_round_that_does_not_fit_gamma_is_refused(trace, change):
    trace["rounds"][1] |= change
    with pytest.raises(SpecdecError, match="round 1 of the trace accepts"):
        trace_figures.check_trace(trace)
