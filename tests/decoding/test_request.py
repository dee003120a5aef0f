"""What can be asked for, what is refused and in which words, and prompts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from specdec_jax.decoding import Options, request, speculative
from specdec_jax.drafts import ModelDraft, NGramDraft
from specdec_jax.errors import SpecdecError
from specdec_jax.sampling import sampling

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens is 0, but must be at least 1; .*limits to 0"),
        ({"gamma": -1}, r"gamma is -1, but must be 0 \(no draft\) or more"),
        ({"rule": "typical"}, "no verification rule 'typical': choose one of 'rejection'"),
        ({"rule": "block", "lenience": 0.5}, "lenience is 0.5 with the block rule"),
        ({"rule": "coupled", "lenience": 0.5}, "only the rejection rule can be lenient"),
    ],
)
def test_b59_c7_impossible_options_are_refused(options, message):
    with pytest.raises(SpecdecError, match=message):
        Options(**options)


@pytest.mark.parametrize("lenience", [0.0, 1.5])
def test_impossible_lenience_is_refused(lenience):
    table = toys.Table(toys.normal(0, 1, 4, 4))
    options = Options(max_tokens=2, gamma=1, lenience=lenience)
    with pytest.raises(SpecdecError, match=f"lenience is {lenience}"):
        speculative(
            table, ModelDraft(table), toys.sources([0]), request(1, key=KEY, max_tokens=2), options
        )


@pytest.mark.parametrize(("lengths", "told"), [([0, 2], "0"), ([1, 4], "4")])
def test_impossible_prompt_lengths_are_refused(lengths, told):
    prompt = jnp.zeros((2, 3), jnp.int32)
    with pytest.raises(SpecdecError, match=f"prompt_lengths holds {told}, outside 1 .. 3"):
        request(2, key=KEY, max_tokens=4, prompt=prompt, prompt_lengths=jnp.array(lengths))


def test_vocabularies_must_agree():
    target = toys.Table(toys.normal(0, 1, 4, 4))
    with pytest.raises(SpecdecError, match="target's vocabulary has 4 ids and the draft's 5"):
        speculative(
            target,
            NGramDraft.uniform(5),
            toys.sources([0]),
            request(1, key=KEY, max_tokens=2),
            Options(max_tokens=2, gamma=1),
        )


def test_what_is_left_out():
    asked = request(3, key=KEY, max_tokens=5)
    assert asked.prompt.tolist() == [[0], [0], [0]]
    assert asked.prompt_lengths.tolist() == [1, 1, 1]
    assert asked.limits.tolist() == [5, 5, 5]
    assert asked.sampling.greedy.tolist() == [True] * 3
    assert asked.draft_sampling is asked.sampling
    assert asked.noise.keys is asked.keys
    prompt = jnp.ones((3, 4), jnp.int32)
    assert request(3, key=KEY, max_tokens=5, prompt=prompt).prompt_lengths.tolist() == [4] * 3


def test_b57_one_key_gives_each_row_its_own_and_given_ones_are_kept():
    data = jax.random.key_data
    one = data(request(3, key=KEY, max_tokens=5).keys)
    assert len({tuple(pair) for pair in one.tolist()}) == 3
    # By the row's number: a larger batch begins with the same keys.
    np.testing.assert_array_equal(one, data(request(9, key=KEY, max_tokens=5).keys)[:3])
    given = jax.random.split(KEY, 3)
    np.testing.assert_array_equal(data(request(3, key=given, max_tokens=5).keys), data(given))


def test_requests_can_be_made_under_jit():
    """Traced values pass unchecked, and mean the same."""

    @jax.jit
    def make(limits):
        return request(2, key=KEY, max_tokens=5, limits=limits)

    asked = request(2, key=KEY, max_tokens=5, limits=np.array([2, 5]))

    def same(traced, known):
        if jnp.issubdtype(known.dtype, jax.dtypes.prng_key):
            traced, known = jax.random.key_data(traced), jax.random.key_data(known)
        np.testing.assert_array_equal(traced, known)

    for traced, known in zip(
        jax.tree.leaves(make(jnp.array([2, 5]))), jax.tree.leaves(asked), strict=True
    ):
        same(traced, known)


@pytest.mark.parametrize("kind", toys.KINDS)
def test_ragged_prompts_are_read_and_not_returned(kind):
    """Greedy: what follows a prompt is what follows it in numpy, one token at a time."""
    target, draft = toys.pairs()
    rng = np.random.default_rng(1)
    lengths = 1 + np.arange(toys.ROWS) % toys.WIDTH
    prompt = rng.integers(0, 6, (toys.ROWS, toys.WIDTH))
    prompt[:, 0] = 0
    prompt[::7, 1:] = toys.EOS  # an end token of the prompt ends nothing
    asked = toys.ask(
        prompt=jnp.asarray(prompt, jnp.int32), prompt_lengths=jnp.asarray(lengths, jnp.int32)
    )
    decoded = toys.run(kind, target, draft, asked)
    tables = np.asarray(target.logits)
    for row in range(toys.ROWS):
        text = prompt[row, : lengths[row]].tolist()
        while len(text) < lengths[row] + toys.TOKENS:
            code = target.codes(np.array([text], np.int32))[0, -1]
            text.append(int(tables[row, code].argmax()))
            if text[-1] == toys.EOS:
                break
        said = text[lengths[row] :]
        assert decoded.lengths[row] == len(said)
        assert decoded.tokens[row].tolist() == said + [0] * (toys.TOKENS - len(said))


@pytest.mark.parametrize("kind", ["plain", "rejection"])
def test_what_is_behind_a_prompt_is_never_read(kind):
    target, draft = toys.pairs()
    lengths = jnp.asarray(1 + np.arange(toys.ROWS) % toys.WIDTH, jnp.int32)
    inside = jnp.arange(toys.WIDTH) < lengths[:, None]
    hot = sampling(toys.ROWS, temperature=1.0)
    # Some tokenizers pad with an id that no embedding has.
    clean, dirty = (
        toys.run(
            kind,
            toys.Strict(target),
            ModelDraft(toys.Strict(draft.model)),
            toys.ask(3, settings=hot, prompt=jnp.where(inside, 4, padding), prompt_lengths=lengths),
        )
        for padding in (0, -100)
    )
    jax.tree.map(np.testing.assert_array_equal, clean, dirty)
    assert np.all(clean.finish != 3)
