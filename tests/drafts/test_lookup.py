"""The copying draft: what it finds, how far it copies, and that copies are exact."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

from specdec_jax.decoding import Options, request, speculative
from specdec_jax.drafts import LookupDraft, ModelDraft, NGramDraft
from specdec_jax.sampling import sampling

V = 40


def guesses(source, text, gamma=4, **options):
    draft = LookupDraft(NGramDraft.uniform(V), **options)
    sequence = jnp.array([[0, *text, *[9] * (12 - len(text))]], jnp.int32)
    state = draft.start(jnp.array([source], jnp.int32), sequence[:, :1], 20)
    proposal, _ = draft.propose(
        state, sequence, jnp.array([len(text)], jnp.int32), toys.favourite, gamma
    )
    return proposal.tokens[0].tolist()


@pytest.mark.parametrize(
    ("source", "text", "options", "copied"),
    [
        # From the source; its end token ends the copy, as does its padding.
        ([10, 11, 12, 13, 14, 1], [20, 11], {}, [12, 13, 14, 1]),
        ([10, 11, 12, 13, 1, 0], [20, 12], {}, [13, 1, 0, 0]),
        # The longer match, though it comes first.
        ([10, 11, 12, 13, 11, 30], [10, 11], {}, [12, 13, 11, 30]),
        # Of two as long the latest; and the text before the source.
        ([11, 12, 11, 30, 31, 32], [20, 11], {}, [30, 31, 32, 0]),
        ([11, 12, 13, 14, 15, 16], [11, 21, 22, 23, 24, 11], {}, [21, 22, 23, 24]),
        # A copy that runs into itself goes round.
        ([30, 31, 0, 0, 0, 0], [5, 6, 5, 6], {}, [5, 6, 5, 6]),
        ([30, 31, 0, 0, 0, 0], [5, 5], {}, [5, 5, 5, 5]),
        # No match, or too short a one.
        ([10, 11, 12, 13, 14, 1], [20, 21], {}, [0, 0, 0, 0]),
        ([10, 11, 12, 13, 14, 1], [20, 11], {"shortest": 2}, [0, 0, 0, 0]),
        ([10, 11, 12, 13, 14, 1], [10, 11], {"shortest": 2}, [12, 13, 14, 1]),
        # Three tokens are compared, no more: the latest of equals wins.
        ([3, 4, 5, 6, 30, 7, 4, 5, 6, 31], [3, 4, 5, 6], {}, [31, 0, 0, 0]),
        ([3, 4, 5, 6, 30, 7, 4, 5, 6, 31], [3, 4, 5, 6], {"longest": 4}, [30, 7, 4, 5]),
        # The text's first token does not continue the source's last.
        ([10, 11, 0, 0], [11], {"shortest": 2}, [0, 0, 0, 0]),
    ],
)
def test_the_longest_match_is_copied(source, text, options, copied):
    assert guesses(source, text, **options) == copied


def test_a_copied_token_is_read_by_the_other_draft():
    """Behind a copy of two tokens the model goes on from these, not from its own favourites."""
    logits = 2 * toys.normal(0, 1, V, V)
    draft = LookupDraft(ModelDraft(toys.Table(logits)))
    source = jnp.array([[0, 11, 12, 1]], jnp.int32)
    sequence = jnp.array([[0, 20, 11, 9, 9, 9]], jnp.int32)
    state = draft.start(source, sequence[:, :1], 20)
    proposal, _ = draft.propose(state, sequence, jnp.array([2], jnp.int32), toys.favourite, 3)
    follower = int(np.argmax(logits[0, 1]))
    assert proposal.tokens[0].tolist() == [12, 1, follower]


@pytest.mark.parametrize("rule", ["rejection", "block", "coupled"])
def test_copies_are_exact(rule):
    """A copying target law: matches occur, are accepted and rejected, and leave the law alone."""
    rows, size, depth = 20_000, 4, 3
    logits = 1.5 * toys.normal(7, 1, size, size)
    asked = request(
        rows, key=jax.random.key(5), max_tokens=depth, settings=sampling(rows, temperature=1.0)
    )
    source = jnp.tile(jnp.array([[0, 2, 3, 2]], jnp.int32), (rows, 1))
    decoded = speculative(
        toys.Table(logits),
        LookupDraft(NGramDraft.uniform(size)),
        source,
        asked,
        Options(max_tokens=depth, gamma=2, rule=rule, record=True),
    )
    law = toys.joint_law(toys.standard(logits[0]), depth)
    assert toys.fit(toys.histogram(decoded.tokens, size), law) > 1e-4
    counters = decoded.counters
    assert 0 < counters.accepted.sum() < counters.tested.sum()


def test_greedy_copies_give_the_tokens_of_plain_decoding():
    target, _ = toys.pairs()
    asked = toys.ask()
    plain = toys.run("plain", target, None, asked)
    found = toys.run("rejection", target, LookupDraft(NGramDraft.uniform(6)), asked)
    np.testing.assert_array_equal(found.tokens, plain.tokens)
    assert found.counters.accepted.sum() > 0
