import dataclasses
import json

import numpy as np
import pytest
from tiny_pairs import save_pair, tiny_pair, tiny_t5

from specdec_jax import checkpoints, generate, pairs, text
from specdec_jax.checkpoints import bundle
from specdec_jax.decoding import Finish
from specdec_jax.errors import SpecdecError
from specdec_jax.generate import Settings, decode, load_pair, unpack
from specdec_jax.sampling import sampling

TINY = Settings(gamma=2, max_tokens=12)
SAMPLED = dataclasses.replace(TINY, temperature=1.0)
EIGHT = ["ab", "", "   ", "ü ☃", "ab", "x y z", "<s>", "\t"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return save_pair(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_pair(tmp_path_factory.mktemp("tiny"))


def run(pair, lines, settings=TINY, **kwargs):
    return list(generate.generate(pair, lines, settings, prefix="", **kwargs))


# One line in, one line out.


@pytest.mark.parametrize("batch", [1, 3])
def test_every_line_gives_a_line_in_order(tiny, batch):
    found = run(tiny, EIGHT, dataclasses.replace(TINY, batch_size=batch))
    assert [line.source for line in found] == EIGHT
    assert all(0 < len(line.tokens) <= 12 for line in found)
    assert all(len(line.scores) == len(line.tokens) for line in found)
    assert found[0].tokens != found[1].tokens
    for line in found:
        assert line.text == tiny.vocabulary.decode(line.tokens)


def test_no_lines_give_no_lines(tiny):
    assert run(tiny, []) == []


def test_results_come_batch_by_batch(tiny, monkeypatch):
    calls = []

    def counted(*args, **kwargs):
        calls.append(kwargs["numbers"].tolist())
        return decode(*args, **kwargs)

    monkeypatch.setattr(generate, "decode", counted)
    found = generate.generate(tiny, EIGHT[:3], dataclasses.replace(TINY, batch_size=2), prefix="")
    next(found)
    assert calls == [[0, 1]]
    assert len(list(found)) == 2
    assert calls == [[0, 1], [2, 3]]


@pytest.mark.parametrize("gamma", [0, 2])
def test_a_sample_depends_on_its_line_and_number_alone(tiny, gamma):
    way = dataclasses.replace(SAMPLED, gamma=gamma)
    alone = [line.tokens for line in run(tiny, EIGHT, way)]
    assert [r.tokens for r in run(tiny, EIGHT, dataclasses.replace(way, batch_size=8))] == alone
    # Other neighbours, one of them so long that the whole batch is padded further.
    others = [line if number in (0, 4) else "other " * 8 for number, line in enumerate(EIGHT)]
    found = [r.tokens for r in run(tiny, others, dataclasses.replace(way, batch_size=8))]
    assert [found[0], found[4]] == [alone[0], alone[4]]
    # The same text twice is two samples, and so is another seed.
    assert alone[0] != alone[4]
    assert run(tiny, EIGHT[:1], dataclasses.replace(way, seed=1))[0].tokens != alone[0]


def test_greedy_speculation_is_plain_decoding(tiny):
    plain, spec = (run(tiny, EIGHT, dataclasses.replace(TINY, gamma=g)) for g in (0, 2))
    assert [a.tokens for a in plain] == [b.tokens for b in spec]
    assert [a.finish for a in plain] == [b.finish for b in spec]
    # The draft is worth having and not perfect, or its guesses would not be tested by the above.
    assert 0 < sum(b.accepted for b in spec) < sum(b.tested for b in spec)
    assert all(a.target_runs == len(a.tokens) and a.drafted == 0 for a in plain)


@pytest.mark.parametrize("gamma", [0, 2])
def test_rounds_tell_how_the_text_came_about(tiny, gamma):
    way = dataclasses.replace(SAMPLED, gamma=gamma, record=True)
    for line in run(tiny, EIGHT, way):
        assert line.rounds is not None
        told = []
        for guesses, accepted, extra in line.rounds:
            assert len(guesses) == gamma
            told += guesses[:accepted]
            if len(told) < len(line.tokens):  # else the row ended on a guess
                told.append(extra)
        assert told == line.tokens
        assert len(line.rounds) == line.target_runs
        assert sum(accepted for _, accepted, _ in line.rounds) == line.accepted
        assert line.drafted == gamma * line.target_runs
    assert run(tiny, EIGHT[:1])[0].rounds is None


def test_a_line_is_a_json_record(tiny):
    (line,) = run(tiny, ["ü"])
    record = json.loads(json.dumps(line.as_dict()))
    assert record == {
        "source": "ü",
        "text": line.text,
        "tokens": line.tokens,
        "scores": pytest.approx(line.scores, abs=1e-6),  # rounded to six places
        "finish": line.finish.name.lower(),
        "target_runs": line.target_runs,
        "drafted": line.drafted,
        "tested": line.tested,
        "accepted": line.accepted,
    }


def test_t5_s_prefix_is_the_default(tiny, monkeypatch):
    seen = []
    original = generate.text.encode_batch
    monkeypatch.setattr(
        generate.text,
        "encode_batch",
        lambda vocabulary, lines, **kwargs: (
            seen.append(lines) or original(vocabulary, lines, **kwargs)
        ),
    )
    monkeypatch.setattr(generate, "decode", lambda *a, **k: pytest.fail("decoded"))
    with pytest.raises(pytest.fail.Exception):
        list(generate.generate(tiny, ["good morning"]))
    assert seen[0] == ["translate English to German: good morning"]


# Lines that cannot be decoded.


def test_a_line_too_long_is_told_before_anything_is_decoded(tiny, monkeypatch):
    monkeypatch.setattr(generate, "decode", lambda *a, **k: pytest.fail("decoded"))
    with pytest.raises(SpecdecError, match="line 3 has 513 tokens"):
        next(generate.generate(tiny, ["a", "b", "c" * 512], TINY, prefix=""))


def test_truncation_decodes_what_fits(tiny):
    cut, whole = run(tiny, ["c" * 600, "c" * 511], truncate=True)
    assert cut.source == "c" * 600
    assert cut.tokens == whole.tokens
    assert cut.tokens != run(tiny, ["c"])[0].tokens


@pytest.mark.parametrize("truncate", [False, True])
def test_a_line_that_is_no_unicode_is_named(tiny, truncate):
    with pytest.raises(SpecdecError, match=r"Line 2 is not Unicode \(character 1\)"):
        run(tiny, ["a", "b\udcff"], truncate=truncate)


# Pairs and settings.


def test_the_shipped_pair_is_the_default():
    pair = load_pair()
    assert {pairs.DEFAULT_TARGET, pairs.DEFAULT_DRAFT} <= checkpoints.shipped().keys()
    assert pair.draft is not None
    assert pair.draft.vocab_size == pair.target.vocab_size == pair.vocabulary.size
    assert not pair.enlarged
    # Small enough to pay at the target's own size, too: parameters that a step reads.
    draft = checkpoints.load("ende_draft").model.config
    assert draft.decoder_step_weights <= pair.target.config.decoder_step_weights / 10


def test_an_enlarged_target_says_so():
    pair = load_pair(shape="small")
    assert pair.enlarged
    own = "D128 H4x32 F768 3+4 V2048"
    assert pair.target_shape == f"D512 H6x64 F1024 8+8 V32128 (enlarged from {own})"
    assert pair.draft_shape == "D64 H4x16 F128 3+1 V2048"
    assert pair.target.vocab_size == 2048


@pytest.mark.parametrize(
    ("target", "draft", "shape", "told"),
    [
        ("{tmp}/none", None, None, "No checkpoint at {tmp}/none"),
        ("{tiny}", "ende_drift", None, "No checkpoint at ende_drift .*shipped: .*ende_draft"),
        ("{tmp}/file", None, None, "{tmp}/file is a file; give the folder"),
        ("{tmp}", None, None, "{tmp} holds no checkpoint of a known format"),
        ("{tiny}", "ende_draft", None, "the target's vocabulary has 259 pieces, the draft's"),
        ("{tmp}/mute", None, None, "There is no vocabulary with {tmp}/mute"),
        ("{tiny}", None, "medium", "No T5 is called 'medium'"),
        ("{tiny}", None, "tiny", "cannot shrink"),
    ],
)
def test_pairs_that_cannot_be(folders, tmp_path, target, draft, shape, told):
    (tmp_path / "file").write_text("x")
    bundle.save(tmp_path / "mute", tiny_t5(), dtype="float32")
    names = {"tmp": tmp_path, "tiny": folders[0]}
    with pytest.raises(SpecdecError, match=told.format(**names)):
        load_pair(target.format(**names), draft, shape=shape)


@pytest.mark.parametrize("draft", ["uniform", "lookup", "lookup+{draft}"])
def test_drafts_by_name(folders, tiny, draft):
    pair = load_pair(folders[0], draft.format(draft=folders[1]))
    plain = run(tiny, EIGHT, dataclasses.replace(TINY, gamma=0))
    found = run(pair, EIGHT, TINY)
    assert [line.tokens for line in found] == [line.tokens for line in plain]
    assert pair.draft_shape == draft.format(draft=tiny.draft_shape)
    if draft != "uniform":
        assert sum(line.accepted for line in found) > 0


def test_a_draft_has_settings_of_its_own(tiny):
    assert SAMPLED.draft_sampling(1) == SAMPLED.sampling(1)
    hot = dataclasses.replace(SAMPLED, draft_temperature=9.0, draft_top_k=3, draft_top_p=0.5)
    assert hot.sampling(1) == SAMPLED.sampling(1)
    assert hot.draft_sampling(1) == sampling(1, temperature=9.0, top_k=3, top_p=0.5)
    accepted = [sum(line.accepted for line in run(tiny, EIGHT, way)) for way in (SAMPLED, hot)]
    assert accepted[0] > accepted[1]


def test_gamma_needs_a_draft(folders, tiny):
    alone = load_pair(folders[0], None)
    with pytest.raises(SpecdecError, match="gamma is 2, but there is no draft: name one, or set 0"):
        run(alone, ["ab"])
    plain = dataclasses.replace(TINY, gamma=0)
    assert run(alone, ["ab"], plain)[0].tokens == run(tiny, ["ab"], plain)[0].tokens


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("gamma", -1, "gamma is -1"),
        ("alpha", 1.5, "alpha is 1.5, but must be in"),
        ("temperature", -0.5, "temperature is -0.5"),
        ("temperature", float("nan"), "temperature is nan"),
        ("top_k", -1, "top_k is -1"),
        ("top_p", 0.0, "top_p is 0.0"),
        ("draft_temperature", -0.5, "temperature is -0.5"),
        ("draft_top_p", 0.0, "top_p is 0.0"),
        ("rule", "typical", "no verification rule 'typical'"),
        ("lenience", 0.0, "lenience is 0.0, but must be above 0"),
        ("lenience", 1.5, "lenience is 1.5, but must be above 0"),
        ("lenience", float("nan"), "lenience is nan"),
        ("max_tokens", 0, "max_tokens is 0"),
        ("batch_size", 0, "batch_size is 0, but must be at least 1"),
        ("seed", -1, r"seed is -1, but must be in 0 \.\. 4294967295"),
        ("seed", 2**32, "seed is 4294967296"),
    ],
)
def test_settings_that_cannot_be_meant(name, value, told):
    with pytest.raises(SpecdecError, match=told):
        Settings(**{name: value})


def test_the_largest_seed_is_one_of_its_own(tiny):
    found = [
        run(tiny, EIGHT[:1], dataclasses.replace(SAMPLED, seed=seed))[0].tokens
        for seed in (2**32 - 1, 2**32 - 2)
    ]
    assert found[0] != found[1]


# The shipped pair: speculation gives plain decoding's tokens on real text.


@pytest.fixture(scope="module")
def shipped():
    return load_pair()


@pytest.fixture(scope="module")
def encoded(shipped, request):
    path = request.path.parent / "data" / "ende_200.tsv"
    lines = [row.split("\t")[0] for row in path.read_text("utf-8").splitlines()]
    assert len(lines) == 200
    lines = [text.prefix("ende") + line for line in lines]
    return text.encode_batch(shipped.vocabulary, lines, buckets=(144,))


def decoded(pair, encoded, gamma, batch, max_tokens=64):
    settings = Settings(gamma=gamma, batch_size=batch, max_tokens=max_tokens)
    found = []
    assert len(encoded) % batch == 0
    for start in range(0, len(encoded), batch):
        rows = np.arange(start, start + batch)
        limits = np.full(batch, max_tokens)
        result = decode(pair, encoded[rows], settings, numbers=rows, limits=limits)
        found += unpack(result, [""] * batch, pair.vocabulary)
    return found


@pytest.fixture(scope="module")
def plain(shipped, encoded):
    """Plain decoding of the sentences, by batch size."""
    found = {batch: decoded(shipped, encoded, 0, batch) for batch in (1, 8)}
    assert len(found[1]) == len(found[8]) == 200
    # Something real is decoded: most sentences end by themselves, at different lengths.
    assert np.mean([line.finish is Finish.END_TOKEN for line in found[8]]) > 0.5
    assert len({len(line.tokens) for line in found[8]}) > 10
    return found


def same(plain, spec, gamma):
    assert [a.tokens for a in plain] == [b.tokens for b in spec]
    assert [a.finish for a in plain] == [b.finish for b in spec]
    assert all(b.drafted == gamma * b.target_runs for b in spec)
    for a, b in zip(plain, spec, strict=True):
        # Two float32 programs over the same logits, of size 30 or so: 1e-3 is 300 roundings.
        np.testing.assert_allclose(a.scores, b.scores, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", range(1, 9))
def test_greedy_outputs_are_plain_ones_in_a_batch(shipped, encoded, plain, gamma):
    same(plain[8], decoded(shipped, encoded, gamma, 8), gamma)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1, 3, 5, 7])
def test_greedy_outputs_are_plain_ones_alone(shipped, encoded, plain, gamma):
    # All 200 sentences, a quarter of them for each gamma: one at a time they take long.
    part = slice(25 * (gamma - 1), 25 * (gamma + 1))
    same(plain[1][part], decoded(shipped, encoded[part], gamma, 1), gamma)


@pytest.mark.slow
def test_greedy_outputs_of_an_enlarged_target_are_its_plain_ones_and_the_small_one_s(
    encoded, plain
):
    large, twelve = load_pair(shape="small"), encoded[:12]
    alone = decoded(large, twelve, 0, 4)
    same(alone, decoded(large, twelve, 4, 4), 4)
    assert [a.tokens for a in alone] == [b.tokens for b in plain[8][:12]]
