"""A row's output belongs to the row: its key, its source, its settings, and nothing else."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import toys

from specdec_jax.decoding import Options, autoregressive, request, speculative
from specdec_jax.decoding.randomness import RowNoise, round_keys
from specdec_jax.sampling import sampling

EVERY_KIND = pytest.mark.parametrize("kind", toys.KINDS)
HOT = sampling(toys.ROWS, temperature=1.0)


def assert_same_row(found, row, expected, other):
    """Everything about a row but its scores to the bit; the room for tokens may differ."""
    length = int(expected.lengths[other])
    assert found.tokens[row, :length].tolist() == expected.tokens[other, :length].tolist()
    assert not np.any(found.tokens[row, length:])
    for name in ("lengths", "finish"):
        assert getattr(found, name)[row] == getattr(expected, name)[other], name
    for name, counts in found.counters._asdict().items():
        assert counts[row].tolist() == getattr(expected.counters, name)[other].tolist(), name
    np.testing.assert_allclose(
        found.scores[row, :length], expected.scores[other, :length], atol=1e-5
    )


@EVERY_KIND
def test_b57_a_seed_is_a_sample(kind):
    target, draft = toys.pairs()
    first, again, other = (
        toys.run(kind, target, draft, toys.ask(seed, settings=HOT)) for seed in (1, 1, 2)
    )
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert np.mean(np.any(first.tokens != other.tokens, axis=1)) > 0.8


@EVERY_KIND
def test_b57_rows_of_one_source_are_independent_samples(kind):
    target, draft = toys.pairs()
    target = dataclasses.replace(target, logits=target.logits / 2)
    which, seeds = np.full(toys.ROWS, 80), range(10)
    firsts = np.stack(
        [
            np.asarray(toys.run(kind, target, draft, toys.ask(s, settings=HOT), which).tokens)[:, 0]
            for s in seeds
        ]
    )
    code = target.codes(np.zeros((1, 1), np.int32))[0, 0]
    law = toys.standard(np.asarray(target.logits)[80, code])
    assert toys.fit(np.bincount(firsts.ravel(), minlength=6), law) > 1e-4
    # Neighbours, which have consecutive keys, agree as often as independent draws do.
    agree, same = np.mean(firsts[:, 1:] == firsts[:, :-1]), np.sum(law**2)
    assert abs(agree - same) < 4 * np.sqrt(same * (1 - same) / firsts[:, 1:].size)


@EVERY_KIND
def test_a_row_is_the_same_at_another_place_of_the_batch(kind):
    target, draft = toys.pairs()
    keys = jax.random.split(jax.random.key(3), toys.ROWS)
    here = toys.run(kind, target, draft, toys.ask(key=keys, settings=HOT))
    order = np.random.default_rng(0).permutation(toys.ROWS)
    there = toys.run(kind, target, draft, toys.ask(key=keys[order], settings=HOT), which=order)
    for row in range(toys.ROWS):
        assert_same_row(there, row, here, order[row])


def test_b32_a_row_is_the_same_alone_greedy_or_not():
    """Eight rows whose drafts go from perfect to useless, in a batch and each on its own."""
    target, draft = toys.pairs()
    batch = np.arange(0, toys.ROWS, toys.ROWS // 8)
    keys = jax.random.split(jax.random.key(4), toys.ROWS)
    for temperature in (0.0, 1.0):
        asked = toys.ask(key=keys, settings=sampling(toys.ROWS, temperature=temperature))
        together = toys.run("rejection", target, draft, asked)
        for row in batch:
            alone = speculative(
                target,
                draft,
                toys.sources([row]),
                request(
                    1,
                    key=keys[row : row + 1],
                    max_tokens=toys.TOKENS,
                    settings=sampling(1, temperature=temperature),
                ),
                Options(max_tokens=toys.TOKENS, gamma=toys.GAMMA),
            )
            assert_same_row(alone, 0, together, row)


def test_padding_and_room_change_nothing():
    target, draft = toys.pairs()
    asked = toys.ask(5, settings=HOT)
    narrow = toys.run("rejection", target, draft, asked)
    wide = speculative(
        target,
        draft,
        toys.sources(np.arange(toys.ROWS), width=9),
        # Longer prompts in the batch, and room for more tokens.
        asked._replace(prompt=jnp.pad(asked.prompt, ((0, 0), (0, 5)))),
        Options(max_tokens=2 * toys.TOKENS, gamma=toys.GAMMA),
    )
    for row in range(toys.ROWS):
        assert_same_row(wide, row, narrow, row)


@EVERY_KIND
def test_other_rows_temperatures_change_nothing(kind):
    target, draft = toys.pairs()
    alike = toys.run(kind, target, draft, toys.ask(6, settings=HOT))
    rows = np.arange(toys.ROWS)
    mixed = sampling(
        toys.ROWS,
        temperature=np.choose(rows % 4, [1.0, 0.0, 1.0, 0.5]),
        top_k=np.choose(rows % 4, [0, 0, 0, 2]),
        top_p=np.choose(rows % 4, [1.0, 1.0, 1.0, 0.5]),
    )
    among = toys.run(kind, target, draft, toys.ask(6, settings=mixed))
    for row in range(0, toys.ROWS, 2):
        assert_same_row(among, row, alike, row)


@pytest.mark.parametrize("kind", ["plain", "coupled"])
def test_a_prompt_continues_the_sample_that_it_begins(kind):
    """Noise belongs to the slot, so forcing the first tokens of a sample leaves the rest of it."""
    target, draft = toys.pairs()
    free = toys.run("plain", target, draft, toys.ask(7, settings=HOT))
    forced = np.arange(toys.ROWS) % toys.WIDTH
    forced = np.minimum(forced, np.asarray(free.lengths) - 1)
    text = np.pad(np.asarray(free.tokens), ((0, 0), (1, 0)))
    inside = np.arange(toys.WIDTH) <= forced[:, None]
    prompt = np.where(inside, text[:, : toys.WIDTH], 5)  # 5: a token, and not one to be read
    asked = toys.ask(
        7,
        settings=HOT,
        prompt=jnp.asarray(prompt, jnp.int32),
        prompt_lengths=jnp.asarray(forced + 1, jnp.int32),
        limits=toys.TOKENS - forced,
    )
    rest = toys.run(kind, target, draft, asked)
    np.testing.assert_array_equal(rest.lengths, np.asarray(free.lengths) - forced)
    np.testing.assert_array_equal(rest.finish, free.finish)
    for row, skip in enumerate(forced):
        kept = slice(0, toys.TOKENS - skip)
        assert rest.tokens[row, kept].tolist() == free.tokens[row, skip:].tolist()
        np.testing.assert_allclose(rest.scores[row, kept], free.scores[row, skip:], atol=1e-5)
    assert set(forced) == {0, 1, 2, 3}


def test_the_chances_of_a_round_are_independent():
    """Uniforms of different rows, slots and guesses: uniform, and without correlation."""
    rows, gamma = 500, 3
    keys = jax.random.split(jax.random.key(0), rows)
    drawn = jax.jit(round_keys, static_argnames="gamma")
    tables = [
        np.asarray(drawn(keys, jnp.full(rows, slot, jnp.int32), gamma=gamma).uniforms)
        for slot in range(4)
    ]
    table = np.concatenate(tables, axis=1)
    assert scipy.stats.kstest(table.ravel(), "uniform").pvalue > 1e-4
    correlation = np.corrcoef(table.T) - np.eye(4 * gamma)
    # 66 correlations of standard deviation 1 / sqrt(500).
    assert np.abs(correlation).max() < 4.5 / np.sqrt(rows)


def test_no_chance_is_used_twice():
    keys = jax.random.split(jax.random.key(0), 5)
    bits = []
    for slot in range(4):
        chances = round_keys(keys, jnp.full(5, slot, jnp.int32), 3)
        data = jax.random.key_data
        bits += [*data(chances.guesses).reshape(-1, 2).tolist(), *data(chances.extra).tolist()]
    assert len({tuple(pair) for pair in bits}) == 5 * 4 * 4


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_of_every_kind_draw_for_each_row_alone(impl):
    """Under `vmap` the bit generators of XLA give every row what belongs to the first one."""
    rows, V = 5000, 4
    one = jax.random.key(3, impl=impl)
    for key in (one, jax.random.split(one, rows)):
        asked = request(rows, key=key, max_tokens=1)
        assert len({tuple(words) for words in jax.random.key_data(asked.keys).tolist()}) == rows
        drawn = np.argmax(asked.noise.gumbel(jnp.ones((rows, 1), jnp.int32), V)[:, 0], axis=-1)
        assert scipy.stats.chisquare(np.bincount(drawn, minlength=V)).pvalue > 1e-4


@pytest.mark.parametrize("word", range(4))
def test_every_bit_of_a_key_counts(word):
    words = np.array([1, 2, 3, 4], np.uint32)
    other = words + (np.arange(4) == word).astype(np.uint32)
    made = [
        request(1, key=jax.random.wrap_key_data(jnp.asarray(w), impl="rbg"), max_tokens=1).keys
        for w in (words, other)
    ]
    first, second = (jax.random.key_data(keys).tolist() for keys in made)
    assert first != second


def test_noise_is_a_function_of_row_and_slot():
    noise = RowNoise(jax.random.split(jax.random.key(0), 2))
    block = noise.gumbel(jnp.array([[3, 4], [4, 5]]), 7)
    one = noise.gumbel(jnp.array([[4], [4]]), 7)
    np.testing.assert_array_equal(block[0, 1], one[0, 0])
    np.testing.assert_array_equal(block[1, 0], one[1, 0])
    assert not np.any(one[0, 0] == one[1, 0])


def test_plain_decoding_follows_the_noise_that_it_is_given():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Always:
        """Noise that lifts one token of each slot above all others."""

        tokens: jax.Array

        def gumbel(self, slot, vocab_size):
            return 1e6 + toys.certain(self.tokens[slot], vocab_size)

    tokens = jnp.array([0, 4, 3, 2, 0, 5, 2, 1, 3])
    asked = request(1, key=jax.random.key(0), max_tokens=8, settings=sampling(1, temperature=1.0))
    asked = asked._replace(noise=Always(tokens))
    target = toys.Table(toys.normal(0, 1, 6, 6))
    decoded = autoregressive(target, toys.sources([0]), asked, Options(max_tokens=8))
    assert decoded.tokens.tolist() == [[4, 3, 2, 0, 5, 2, 1, 0]]
