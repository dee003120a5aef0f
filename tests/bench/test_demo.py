import dataclasses
import json

import pytest
from tiny_pairs import tiny_pair

from specdec_jax.bench import demo
from specdec_jax.bench.compare import LineResult
from specdec_jax.bench.timing import Spread, StepCosts
from specdec_jax.decoding import Finish
from specdec_jax.generate import Line, Settings
from specdec_jax.text import ByteVocabulary


def ids(text):
    return ByteVocabulary().encode(text)


A, B, C, D = ids("abcd")
LINE = Line(
    source="source",
    text="abcd",
    tokens=[A, B, C, D, 1],
    scores=[0.0] * 5,
    finish=Finish.END_TOKEN,
    target_runs=2,
    drafted=4,
    tested=4,
    accepted=3,
    # b was guessed wrong; then two were right and the second of them ended the line.
    rounds=[([A, D], 1, B), ([C, D], 2, 1)],
)
OTHER = dataclasses.replace(LINE, text="abc", tokens=[A, B, C, 1])


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return tiny_pair(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def letters(pair):
    """A vocabulary that shows bytes as letters."""

    class Letters(ByteVocabulary):
        def piece(self, token_id):
            return (
                "▁" if token_id == 3 + ord(" ") else chr(token_id - 3) if token_id > 2 else "</s>"
            )

    return dataclasses.replace(pair, vocabulary=Letters())


def test_the_sentences_are_the_shipped_pairs():
    pairs = demo.sentences()
    assert len(pairs) == 24
    assert all(english and german and english != german for english, german in pairs)
    summaries = demo.sentences("debian_synopsis")
    assert len(summaries) == 24
    assert all(len(synopsis) < len(description) for description, synopsis in summaries)
    assert not {source for source, _ in pairs} & {source for source, _ in summaries}


def test_a_trace_marks_accepted_rejected_and_own(letters):
    shown = demo.trace_line(LINE, letters.vocabulary, colour=False)
    assert shown == "a[-d-]{+b+}cd{+</s>+}"
    shown = demo.trace_line(LINE, letters.vocabulary, colour=True)
    assert shown == (
        "\033[32ma\033[0m\033[31;9md\033[0m\033[1;34mb\033[0m"
        "\033[32mc\033[0m\033[32md\033[0m\033[1;34m</s>\033[0m"
    )


def test_a_trace_that_ends_on_a_guess_shows_nothing_behind_it(letters):
    line = dataclasses.replace(LINE, rounds=[([A, 1, B], 2, 0)])
    assert demo.trace_line(line, letters.vocabulary, colour=False) == "a</s>"


def test_spaces_are_spaces(letters):
    (space,) = ids(" ")
    line = dataclasses.replace(LINE, rounds=[([A, space, B], 3, space)])
    assert demo.trace_line(line, letters.vocabulary, colour=False) == "a b{+ +}"
    line = dataclasses.replace(LINE, rounds=None)
    assert demo.trace_line(line, letters.vocabulary, colour=True) == ""


RECORD = {
    "sentences": 2,
    "tokens": 9,
    "identical": 1,
    "gamma": 3,
    "alpha": 0.7512,
    "tokens_per_run": 2.254,
    "c": 0.0512,
    "v": 1.234,
    "seconds_plain": 12.0,
    "seconds_speculative": 5.0,
    "speedup": 2.4,
    "speedup_decoding": 2.6,
    "predicted_speedup": 2.345,
    "step_seconds": {
        "target_step": {"median": 0.02},
        "draft_step": {"median": 0.001},
        "verify": {"median": 0.025},
    },
}


def test_the_summary_is_a_table():
    assert demo.render(RECORD).splitlines() == [
        "sentences                      2",
        "tokens                         9",
        "identical outputs              1/2",
        "alpha (accepted / tested)      0.751",
        "tokens per target run          2.25",
        "c (draft step / target step)   0.051   1.00 ms / 20.0 ms",
        "v (4 tokens / 1 token)         1.23    25.0 ms / 20.0 ms",
        "seconds, plain                 12.00",
        "seconds, speculative           5.00",
        "speedup, measured              2.40x   whole decodes, encoders included",
        "speedup, decoding alone        2.60x   encoders taken off",
        "speedup, predicted             2.35x   tokens per run / (gamma c + v), encoders left out",
    ]
    assert "none tested" in demo.render(RECORD | {"alpha": None})
    assert "predicted             none: the" in demo.render(RECORD | {"predicted_speedup": None})
    assert "decoding alone        none: the" in demo.render(RECORD | {"speedup_decoding": None})


@pytest.fixture
def told(letters, monkeypatch):
    """Run the demonstration on decodes made up; its record and lines."""
    one = Spread(0.01, 0.01, 0.01, 1)
    seen = {}

    def fake(pair, lines, settings, **kwargs):
        seen.update(lines=lines, **kwargs)
        yield LineResult([LINE], [LINE], [2.0, 4.0], [1.0, 2.0], [0.1, 0.1], [0.1, 0.1], [1], [1])
        yield LineResult([OTHER], [LINE], [2.0, 4.0], [1.0, 2.0], [0.1, 0.1], [0.1, 0.1], [1], [1])

    monkeypatch.setattr(demo, "compare", fake)
    costs = StepCosts(one, one, one, c=0.1, v=1.0)
    monkeypatch.setattr(demo, "costs_for", lambda *args, **kwargs: costs)

    def run(temperature=0.0, pair=letters):
        settings = Settings(gamma=2, temperature=temperature, record=True, seed=9)
        out = []
        record = demo.run(pair, settings, count=2, repeats=2, colour=False, out=out.append)
        assert seen["lines"] == [english for english, _ in demo.sentences()[:2]]
        assert (seen["prefix"], seen["repeats"]) == ("translate English to German: ", 2)
        return record, "\n".join(out)

    return run


def test_the_demonstration_shows_each_line_and_the_sum(told):
    record, out = told()
    assert "  source  source\n  output  abcd\n  trace   a[-d-]{+b+}cd{+</s>+}\n" in out
    same = "identical to plain decoding; 5 tokens in 2 target runs, 3.00 s -> 1.50 s"
    assert out.count(same) == 1
    assert "  plain   abc\n" in out
    assert "DIFFERENT; 5 tokens" in out
    assert demo.render(record) in out
    assert record["identical"] == 1
    assert record["seed"] == 9
    assert json.loads(json.dumps(record)) == record


def test_samples_may_differ(told):
    _, out = told(temperature=0.7)
    assert "a sample of the same distribution; 5 tokens" in out
    assert "DIFFERENT" not in out


def test_an_enlarged_target_is_told(told, letters):
    assert "small trained model" not in told()[1]
    large = dataclasses.replace(letters, target_shape="D768 (enlarged from D16)")
    out = told(pair=large)[1]
    assert "target  D768 (enlarged from D16)" in out
    assert "its cost is the large one's, its German the small one's" in out
