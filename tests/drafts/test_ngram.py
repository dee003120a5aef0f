"""N-gram drafts in the loop: what they guess, and that any guess is exact."""

import jax
import jax.numpy as jnp
import numpy as np
import toys

from specdec_jax.decoding import Options, request, speculative
from specdec_jax.drafts import Continuations, NGramDraft
from specdec_jax.sampling import sampling

V = 4


def bigram(logits):
    """The NGramDraft that knows a Markov table: all continuations, nothing left over."""
    probs = jax.nn.softmax(logits, axis=-1)
    size = probs.shape[-1]
    level = Continuations(
        contexts=jnp.arange(size, dtype=jnp.int32),
        tokens=jnp.tile(jnp.arange(size, dtype=jnp.int32), (size, 1)),
        probs=probs,
        rest=jnp.zeros(size),
    )
    return NGramDraft(jnp.full(size, 1 / size), (level,))


def test_guesses_follow_the_tokens_before_them():
    table = np.full((6, 6), -9.0, np.float32)
    for here, there in ((0, 2), (2, 3), (3, 5), (5, 4), (4, 2)):
        table[here, there] = 0.0
    draft = bigram(jnp.asarray(table))
    sequence = jnp.array([[0, 2, 9, 9], [0, 4, 2, 3], [0, 9, 9, 9]], jnp.int32)

    proposal, _ = draft.propose((), sequence, jnp.array([1, 3, 0], jnp.int32), toys.favourite, 3)
    assert proposal.tokens.tolist() == [[3, 5, 4], [5, 4, 2], [2, 3, 5]]


def test_a_draft_that_knows_the_target_is_always_accepted():
    logits = 1.5 * toys.normal(3, 1, V, V)
    rows = 50
    asked = request(
        rows, key=jax.random.key(0), max_tokens=8, settings=sampling(rows, temperature=1.0)
    )
    decoded = speculative(
        toys.Table(logits),
        bigram(logits[0]),
        toys.sources(np.zeros(rows)),
        asked,
        Options(max_tokens=8, gamma=3, eos_id=-1),
    )
    assert decoded.alpha() == 1.0


def test_a_unigram_draft_is_exact():
    rows, depth = 20_000, 2
    logits = 1.5 * toys.normal(3, 1, V, V)
    unigram = jnp.array([0.1, 0.2, 0.3, 0.4])
    asked = request(
        rows, key=jax.random.key(5), max_tokens=depth, settings=sampling(rows, temperature=1.0)
    )
    decoded = speculative(
        toys.Table(logits),
        NGramDraft(unigram),
        toys.sources(np.zeros(rows)),
        asked,
        Options(max_tokens=depth, gamma=1, record=True),
    )
    p = toys.standard(logits[0])
    assert toys.fit(toys.histogram(decoded.tokens, V), toys.joint_law(p, depth)) > 1e-4
    beta = np.minimum(p[0], unigram).sum()
    first = np.asarray(decoded.rounds.accepted)[:, 0].mean()
    assert abs(first - beta) < 3 * np.sqrt(beta * (1 - beta) / rows)
