"""How much of a drafted block the target accepts, and what the next token is drawn from.

Three exact rules (`RULES`). Everything here is Algorithm 1 of arXiv:2211.17192 on arrays: p is the
target's distribution, q the draft's, both already standardized (`distributions`); p has one
position more than q, since the target also says what follows the whole block.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple, cast, get_args

import jax
import jax.numpy as jnp

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling.types import Array, Bool, Float, Int

Rule = Literal["rejection", "block", "coupled"]

RULES: Mapping[Rule, str] = MappingProxyType(
    {
        "rejection": "token by token (arXiv:2211.17192, Algorithm 1); the target's distribution",
        "block": "the block as a whole (arXiv:2403.10444); same distribution, accepts no less",
        "coupled": "shared noise, exact match; the very samples of plain decoding with that noise",
    }
)


def check_rule(name: str) -> Rule:
    """Returns `name` if it is one of `RULES`.

    Raises:
        SpecdecError: if it is not; an unknown rule must never fall back to a known one.
    """
    if name not in get_args(Rule):
        listed = ", ".join(repr(rule) for rule in RULES)
        raise SpecdecError(f"there is no verification rule {name!r}: choose one of {listed}.")
    return cast(Rule, name)


_TINY = float(jnp.finfo(jnp.float32).tiny)


class Verdict(NamedTuple):
    """What verification decided.

    Attributes:
        accepted: int32 [B] in 0..G, the length n of the accepted *prefix* of the drafted block.
        extra: float32 [B, V], the distribution of the one token that follows it.
    """

    accepted: Int[Array, " B"]
    extra: Float[Array, "B V"]


def residual(
    p: Float[Array, "*leading V"], q: Float[Array, "*leading V"]
) -> Float[Array, "*leading V"]:
    """norm(max(0, p - q)): what the target still owes after a rejection (section 2.3).

    Acceptance emits each token with probability min(p, q), so p - min(p, q) is missing, in all
    as much as is rejected (A.1); hence the excess divided by its sum.

    If there is no excess, p is returned. Exactly, p = q then, and no rejection leads here; but
    rounding may leave q(x) a last bit above p(x) for some x with no other token below, and a
    rejection of that bit is drawn from p. The law moves by no more than the rejected mass, a
    rounding error, and the token is one that the target allows.

    Args:
        p: the target's distribution over the last axis.
        q: the draft's.

    Returns:
        A distribution over the last axis.

    Example:
        >>> residual(jnp.array([0.5, 0.3, 0.2]), jnp.array([0.2, 0.5, 0.3])).tolist()
        [1.0, 0.0, 0.0]
    """
    excess = jnp.maximum(p - q, 0.0)
    mass = jnp.sum(excess, axis=-1, keepdims=True)
    return jnp.where(mass > 0, excess / jnp.where(mass > 0, mass, 1.0), p)


@partial(jax.jit, static_argnames="lenience")
def reject(
    p: Float[Array, "B N V"],
    q: Float[Array, "B G V"],
    drafted: Int[Array, "B G"],
    uniforms: Float[Array, "B G"],
    *,
    lenience: float = 1.0,
) -> Verdict:
    """Speculative sampling, token by token (Algorithm 1, steps 3 and 4).

    Guess x_i ~ q_i is kept with probability min(1, p_i(x_i) / q_i(x_i)), here as u q < p. The
    inequality is strict so that a token with p = 0 is rejected even at u = 0; and p >= q > 0
    always holds the guess, since u < 1. The first failure ends the block, whatever follows it.

    One round by hand, gamma = 3, with p = (.5, .3, .2) and q = (.2, .5, .3) everywhere:

    ======== === ==== ===== ======= ===============================================
    position x_i u    u q   p       outcome
    ======== === ==== ===== ======= ===============================================
    1        0   0.9  0.18  0.5     kept (p > q: any u would do)
    2        1   0.7  0.35  0.3     rejected: n = 1, extra = norm(.3, 0, 0)
    3        0   0.1  0.02  0.5     would pass, and does not count
    ======== === ==== ===== ======= ===============================================

    >>> p = jnp.broadcast_to(jnp.array([0.5, 0.3, 0.2]), (1, 4, 3))
    >>> q = jnp.broadcast_to(jnp.array([0.2, 0.5, 0.3]), (1, 3, 3))
    >>> verdict = reject(p, q, jnp.array([[0, 1, 0]]), jnp.array([[0.9, 0.7, 0.1]]))
    >>> verdict.accepted.tolist(), verdict.extra.tolist()
    ([1], [[1.0, 0.0, 0.0]])

    Args:
        p: [B, G+1, V], the target's distributions.
        q: [B, G, V], those from which the guesses were drawn, to the bit.
        drafted: int [B, G], the guesses.
        uniforms: [B, G] in [0, 1), independent.
        lenience: l in (0, 1] (A.5): q is scaled by l, which raises the acceptance to
            sum min(p / l, q) and lets a token be emitted with up to p(x) / l. Only 1 is exact.

    Returns:
        n and, for the extra token, the residual at n+1, or p_{G+1} if the whole block is kept.

    Raises:
        SpecdecError: if lenience is outside (0, 1].
    """
    if not 0.0 < lenience <= 1.0:
        raise SpecdecError(
            f"lenience is {lenience}, but must be above 0 and at most 1: 1 keeps the target's "
            f"distribution, smaller values accept more and change it."
        )
    q = q * lenience
    keep = uniforms * _of_drafted(q, drafted) < _of_drafted(p, drafted)
    accepted = _prefix_length(keep)
    owed = residual(_at(p, accepted), _at(_with_zeros(q), accepted))
    return Verdict(accepted, _unless_complete(p, accepted, owed))


@jax.jit
def accept_block(
    p: Float[Array, "B N V"],
    q: Float[Array, "B G V"],
    drafted: Int[Array, "B G"],
    uniforms: Float[Array, "B G"],
) -> Verdict:
    """Block verification (Sun et al., arXiv:2403.10444, Algorithm 2): the block judged jointly.

    A guess that p likes more than q does has probability to spare; the token rule wastes it, this
    rule lends it to the guesses after it. Let w_0 = 1 and

        w_i = min(1, w_{i-1} p_i(x_i) / q_i(x_i))
        S_i = sum_x max(0, w_i p_{i+1}(x) - q_{i+1}(x))
        h_i = S_i / (S_i + 1 - w_i)  for i < G,    h_G = w_G.

    n is the *largest* i with u_i < h_i (0 if none): a late success redeems earlier failures. The
    extra token comes from norm(max(0, w_n p_{n+1} - q_{n+1})), or from p_{G+1} if n = G.

    Why it is exact. Given x_1..x_i, P(n >= i) = w_i: true at G; and if true at i+1, then
    b = P(n > i) = sum_x q w_{i+1} = sum_x min(q_{i+1}, w_i p_{i+1}) = w_i - S_i, whence
    P(n = i) = (1 - b) h_i = S_i and P(n >= i) = b + S_i = w_i. So a prefix drafted with
    probability Q is followed by x, as guess or as extra token, with
    Q (min(q, w_i p) + max(0, w_i p - q)) = Q w_i p(x): in proportion to p, at every i.

    Why it accepts no less. The expected length is the sum over i of E[w_i], that of the token
    rule the sum of E[prod_j min(1, p_j / q_j)], and w_i is at least that product.

    Args:
        p: [B, G+1, V], the target's distributions.
        q: [B, G, V], those from which the guesses were drawn, to the bit.
        drafted: int [B, G], the guesses.
        uniforms: [B, G] in [0, 1), independent.

    Returns:
        n and the distribution of the extra token, as for `reject`.
    """
    block = drafted.shape[1]
    p_drafted, q_drafted = _of_drafted(p, drafted), _of_drafted(q, drafted)
    weights = [jnp.ones_like(p[:, 0, 0])]
    for i in range(block):
        # A guess of q = 0 cannot be drawn; the floor only keeps 0/0 out of the arithmetic.
        ratio = weights[-1] * p_drafted[:, i] / jnp.maximum(q_drafted[:, i], _TINY)
        weights.append(jnp.minimum(1.0, ratio))
    weight = jnp.stack(weights, axis=1)

    scaled = weight[..., None] * p
    spare = jnp.sum(jnp.maximum(scaled[:, 1:block] - q[:, 1:], 0.0), axis=-1)
    loss = 1.0 - weight[:, 1:block]
    # Where w = 1 the quotient is S/S. At S = 0 too it must be 1: then p = q at the next position,
    # and a last bit lost there must not cost the guesses before it.
    held = jnp.where(loss > 0, spare / jnp.where(loss > 0, spare + loss, 1.0), 1.0)
    # Sliced twice so that an empty block has no threshold, not w_0.
    thresholds = jnp.concatenate([held, weight[:, 1:][:, -1:]], axis=1)
    keep = uniforms < thresholds
    accepted = jnp.max(jnp.where(keep, jnp.arange(1, block + 1), 0), axis=1, initial=0)

    # No excess is possible only with w = 1 (otherwise h = 0), so the fallback is p itself.
    owed = residual(_at(scaled, accepted), _at(_with_zeros(q), accepted))
    return Verdict(accepted.astype(jnp.int32), _unless_complete(p, accepted, owed))


def match(chosen: Int[Array, "B N"], drafted: Int[Array, "B G"]) -> Int[Array, " B"]:
    """The coupled rule: how many guesses are the target's own choices.

    Target and draft choose with the same noise, so equality is likely; what is emitted is the
    target's choice in any case, `chosen[:n + 1]`, hence the very samples of plain decoding.

    Args:
        chosen: int [B, G+1], the target's choice at each position.
        drafted: int [B, G], the guesses.

    Returns:
        int32 [B], the length n of the prefix on which both agree.
    """
    return _prefix_length(chosen[:, :-1] == drafted)


def _of_drafted(probs: Float[Array, "B N V"], drafted: Int[Array, "B G"]) -> Float[Array, "B G"]:
    """The probability of each guess; a last position without a guess is left out."""
    at_guesses = probs[:, : drafted.shape[1]]
    return jnp.take_along_axis(at_guesses, drafted[..., None], axis=-1)[..., 0]


def _prefix_length(keep: Bool[Array, "B G"]) -> Int[Array, " B"]:
    """How many guesses stand before the first failure; later successes do not count."""
    return jnp.sum(jnp.cumprod(keep.astype(jnp.int32), axis=1), axis=1)


def _at(values: Float[Array, "B N V"], position: Int[Array, " B"]) -> Float[Array, "B V"]:
    return jnp.take_along_axis(values, position[:, None, None], axis=1)[:, 0]


def _with_zeros(q: Float[Array, "B G V"]) -> Float[Array, "B N V"]:
    """Appends a zero distribution to q, for the position after the last guess."""
    return jnp.pad(q, ((0, 0), (0, 1), (0, 0)))


def _unless_complete(
    p: Float[Array, "B N V"], accepted: Int[Array, " B"], owed: Float[Array, "B V"]
) -> Float[Array, "B V"]:
    """`owed`, but p_{G+1} untouched where the whole block was accepted."""
    complete = accepted == p.shape[1] - 1
    return jnp.where(complete[:, None], p[:, -1], owed)
