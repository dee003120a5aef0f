import numpy as np

from specdec_jax.bench import figures


def curves(figure):
    """Each line of the figure at alpha = 0.5 and 0.9, those that span both."""
    (axes,) = figure.axes
    data = [np.asarray(line.get_ydata()) for line in axes.lines]
    return [(round(float(y[0]), 3), round(float(y[-1]), 3)) for y in data if len(y) > 2]


def labels(figure):
    (axes,) = figure.axes
    return [text.get_text() for text in axes.texts]


# (E, operations) at alpha 0.5 and 0.9 for gamma = 1, 3, 5, 7, 10, as the paper's curves end.
TOKENS = [(1.5, 1.9), (1.875, 3.439), (1.969, 4.686), (1.992, 5.695), (1.999, 6.862)]
OPERATIONS = [(1.333, 1.053), (2.133, 1.163), (3.048, 1.281), (4.016, 1.405), (5.503, 1.603)]


def test_figure_2():
    figure = figures.expected_tokens_figure()
    assert curves(figure) == [*TOKENS[:4], (2, 10)]
    assert labels(figure) == [
        *[rf"$\gamma$ = {gamma}" for gamma in (1, 3, 5, 7)],
        r"$\gamma$ = ∞",
        "plain decoding",
    ]


def test_figure_3():
    figure = figures.optimal_gamma_figure()
    assert curves(figure) == [(5, 24), (4, 19), (3, 13), (2, 10)]
    assert labels(figure) == ["c = 0.01", "c = 0.02", "c = 0.05", "c = 0.1"]


def test_figure_4():
    assert curves(figures.speed_and_operations_figure()) == TOKENS + OPERATIONS


def test_every_label_lies_on_the_page():
    for figure in (
        figures.expected_tokens_figure(),
        figures.optimal_gamma_figure(),
        figures.speed_and_operations_figure(),
    ):
        figure.canvas.draw()
        (axes,) = figure.axes
        page = figure.bbox
        for text in axes.texts:
            box = text.get_window_extent()
            assert box.x1 <= page.x1
            assert box.y1 <= page.y1


def test_the_same_figure_is_the_same_file(tmp_path):
    first = figures.save(figures.optimal_gamma_figure(), tmp_path / "a")
    second = figures.save(figures.optimal_gamma_figure(), tmp_path / "b")
    assert [path.suffix for path in first] == [".svg", ".png"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
