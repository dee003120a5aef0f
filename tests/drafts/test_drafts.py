"""Drafts as the loop calls them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import toys

from specdec_jax.decoding import Options, request, speculative
from specdec_jax.drafts import ModelDraft, NGramDraft
from specdec_jax.sampling import sampling

GAMMA = 3


def continued(model, source, text, count):
    """The greedy continuation of a text, from the model's tables and the text alone."""
    tables, text = np.asarray(model.logits)[source], list(text)
    for _ in range(count):
        code = model.codes(np.array([text], np.int32))[0, -1]
        text.append(int(tables[code].argmax()))
    return text[-count:]


def test_a_model_draft_guesses_what_its_model_says():
    """From slot 0, behind a prompt, after a rejection and after a whole block (no hole left)."""
    model = toys.pairs()[1].model
    draft = ModelDraft(model)
    assert draft.vocab_size == 6
    rows = np.array([3, 60, 199])
    sequence = np.zeros((3, 16), np.int32)
    sequence[1, :3], sequence[2, :2] = (0, 2, 5), (0, 3)
    position = np.array([0, 2, 1])
    prompt = jnp.asarray(sequence[:, :3])
    state = draft.start(toys.sources(rows), prompt, 16)
    propose = jax.jit(functools.partial(draft.propose, choose=toys.favourite, gamma=GAMMA))
    for move in ((1, 4, 2), (4, 4, 1), (4, 1, 3)):
        at = jnp.asarray(position, jnp.int32)
        proposal, state = propose(state, jnp.asarray(sequence), at)
        for row in range(3):
            text = sequence[row, : position[row] + 1]
            guesses = continued(model, rows[row], text, GAMMA)
            assert proposal.tokens[row].tolist() == guesses
            # The target keeps move - 1 of them and adds a token of its own.
            kept = [*guesses[: move[row] - 1], 4]
            sequence[row, position[row] + 1 : position[row] + 1 + len(kept)] = kept
        position = position + move
    np.testing.assert_array_equal(proposal.probs, jax.nn.one_hot(proposal.tokens, 6))


def test_q_is_what_was_chosen_from():
    """A proposal hands on the choice's own arrays, guess by guess."""
    draft = toys.pairs()[1]
    made = []

    def choose(index, logits):
        q = jax.nn.softmax(logits) + index
        made.append(q)
        return jnp.full(logits.shape[:1], index, jnp.int32), q

    state = draft.start(toys.sources([0, 1]), jnp.zeros((2, 1), jnp.int32), 8)
    at = jnp.zeros(2, jnp.int32)
    for guesser, remembered in ((draft, state), (NGramDraft.uniform(6), ())):
        made.clear()
        sequence = jnp.zeros((2, 8), jnp.int32)
        proposal, _ = guesser.propose(remembered, sequence, at, choose, GAMMA)
        assert proposal.tokens.tolist() == [[0, 1, 2]] * 2
        np.testing.assert_array_equal(proposal.probs, jnp.stack(made, axis=1))


def test_a_uniform_draft_is_exact_and_accepted_as_the_overlap_says():
    rows, V, depth = 20_000, 4, 2
    logits = 1.5 * toys.normal(3, 1, V, V)
    asked = request(
        rows, key=jax.random.key(1), max_tokens=depth, settings=sampling(rows, temperature=1.0)
    )
    decoded = speculative(
        toys.Table(logits),
        NGramDraft.uniform(V),
        toys.sources(np.zeros(rows)),
        asked,
        Options(max_tokens=depth, gamma=1, record=True),
    )
    p = toys.standard(logits[0])
    assert toys.fit(toys.histogram(decoded.tokens, V), toys.joint_law(p, depth)) > 1e-4
    beta = np.minimum(p[0], 1 / V).sum()
    first = np.asarray(decoded.rounds.accepted)[:, 0].mean()
    assert abs(first - beta) < 3 * np.sqrt(beta * (1 - beta) / rows)
