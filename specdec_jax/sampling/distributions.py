"""From logits to the distribution that is sampled: argmax, temperature, top-k and top-p.

The paper (arXiv:2211.17192, section 2.2) turns every way of choosing a token into plain sampling
from an adjusted ("standardized") distribution; from there on p and q mean the adjusted ones. All
settings are traced and belong to a row, so rows with different settings share one compiled
program, and what only some rows need is skipped at run time where no row of the batch needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling.types import Array, Bool, Float, Int, Key

GREEDY_TEMPERATURE = 1e-4
"""Temperatures up to this bound mean argmax. T5X draws the line at the same value."""


PerRow = int | float | Sequence[int] | Sequence[float] | np.ndarray | jax.Array
"""One value for all rows of a batch, or one for each."""


class Sampling(NamedTuple):
    """How each row of a batch chooses its tokens; make one with `sampling`.

    Attributes:
        temperature: float32 [B], at least 0; up to `GREEDY_TEMPERATURE` it means argmax.
        top_k: int32 [B], at least 0; 0 turns the filter off.
        top_p: float32 [B] in (0, 1]; 1 turns the filter off.
    """

    temperature: Float[Array, " B"]
    top_k: Int[Array, " B"]
    top_p: Float[Array, " B"]

    @property
    def greedy(self) -> Bool[Array, " B"]:
        """Rows at temperature 0, up to `GREEDY_TEMPERATURE`."""
        return self.temperature <= GREEDY_TEMPERATURE


def sampling(
    batch: int,
    *,
    temperature: PerRow = 0.0,
    top_k: PerRow = 0,
    top_p: PerRow = 1.0,
) -> Sampling:
    """Settings for a batch, checked where their values are known.

    Args:
        batch: the number of rows B.
        temperature: one value or B of them, finite and at least 0; 0 is argmax.
        top_k: one value or B of them, whole and at least 0; 0 is off.
        top_p: one value or B of them, in (0, 1]; 1 is off.

    Returns:
        The settings as arrays of length B. Traced values pass unchecked.

    Raises:
        SpecdecError: for a value outside its range, or a length other than B.

    Example:
        >>> sampling(2, temperature=[0.0, 0.7]).temperature.tolist()
        [0.0, 0.699999988079071]
    """
    return Sampling(
        temperature=_per_row(
            "temperature",
            temperature,
            batch,
            jnp.float32,
            lambda t: np.isfinite(t) & (t >= 0),
            "finite and at least 0 (0 is argmax)",
        ),
        top_k=_per_row(
            "top_k",
            top_k,
            batch,
            jnp.int32,
            lambda k: (k >= 0) & (k == np.floor(k)),
            "a whole number, at least 0 (0 turns the filter off)",
        ),
        top_p=_per_row(
            "top_p",
            top_p,
            batch,
            jnp.float32,
            lambda p: (p > 0) & (p <= 1),
            "above 0 and at most 1 (1 turns the filter off; for argmax set temperature to 0)",
        ),
    )


def _per_row(
    name: str,
    value: PerRow,
    batch: int,
    dtype: type,
    allowed: Callable[[np.ndarray], np.ndarray],
    domain: str,
) -> jax.Array:
    shape = np.shape(value)
    if shape not in ((), (batch,)):
        raise SpecdecError(
            f"{name} has shape {shape}, but the batch has {batch} rows: "
            f"give one value, or one for each row."
        )
    if not isinstance(value, Tracer):
        given = np.asarray(value)
        # float32 first: 1e-50 is a valid top_p until the device sees it, as 0.
        floats = given.astype(np.float32)
        valid = np.atleast_1d(allowed(floats))
        if not valid.all():
            row = int(np.argmin(valid))
            label = f"{name}[{row}]" if shape else name
            raise SpecdecError(f"{label} is {np.atleast_1d(given)[row]}, but must be {domain}.")
        # A k beyond int32 exceeds every vocabulary, and must not wrap round to a small one.
        value = floats if dtype == jnp.float32 else np.minimum(given, np.iinfo(np.int32).max)
    return jnp.broadcast_to(jnp.asarray(value).astype(dtype), (batch,))


@jax.jit
def adjust(logits: Float[Array, "B N V"], sampling: Sampling) -> Float[Array, "B N V"]:
    """Logits of the adjusted distribution: temperature, then top-k, then top-p.

    - The temperature comes first, so that top-p weighs the distribution that is sampled.
    - Top-k keeps the k largest logits *and all that equal the k-th*, as T5X does: among equals
      there is no reason to prefer one, and a rule by position would make the distribution
      depend on the order of the vocabulary.
    - Top-p keeps the smallest set of most likely tokens whose mass, after top-k and
      renormalised, reaches p; equals of the last one stay too.
    - A row at temperature 0 (up to `GREEDY_TEMPERATURE`) keeps the largest raw logit alone, the
      lowest id where several are equal, -0.0 and 0.0 included; the filters are ignored. One
      winner, not a tie, because argmax is a function.

    Args:
        logits: [B, N, V] in any float type; every computation is in float32.
        sampling: the settings of the B rows.

    Returns:
        float32 [B, N, V]; -inf where a token is excluded. Greedy rows are 0 at their token.
    """
    logits = logits.astype(jnp.float32)
    greedy = sampling.greedy
    # Greedy rows are divided by 1: they are decided on the raw logits, and never as 0/0.
    logits = logits / jnp.where(greedy, 1.0, sampling.temperature)[:, None, None]
    logits = _where_needed(
        (sampling.top_k > 0) & ~greedy, lambda x: _keep_top_k(x, sampling.top_k), logits
    )
    logits = _where_needed(
        (sampling.top_p < 1) & ~greedy, lambda x: _keep_top_p(x, sampling.top_p), logits
    )
    return _where_needed(greedy, _keep_argmax, logits)


@jax.jit
def standardize(logits: Float[Array, "B N V"], sampling: Sampling) -> Float[Array, "B N V"]:
    """The adjusted distribution of section 2.2, p or q of everything that follows.

    Args:
        logits: [B, N, V] in any float type.
        sampling: the settings of the B rows.

    Returns:
        float32 [B, N, V], probabilities over V; exactly one-hot for greedy rows. NaN appears where
        the logits have NaN, or a largest value that is infinite, and only there.

    Example:
        >>> logits = jnp.log(jnp.array([[[0.5, 0.3, 0.2]]]))
        >>> standardize(logits, sampling(1)).tolist()
        [[[1.0, 0.0, 0.0]]]
    """
    return lax.cond(
        jnp.all(sampling.greedy),
        lambda x: jnp.maximum(x + 1.0, 0.0),  # 0 and -inf to 1 and 0, as softmax would
        lambda x: jax.nn.softmax(x, axis=-1),
        adjust(logits, sampling),
    )


@jax.jit
def draw(keys: Key[Array, "B N"], probs: Float[Array, "B N V"]) -> Int[Array, "B N"]:
    """One token from each distribution, each with its own key.

    The largest of log p + Gumbel noise is a sample of p. A token of probability 0 stands at
    -inf, where no noise lifts it, so it is never drawn. The noise has the high dynamic range:
    the common form ends at 16, which would leave tokens of probability below 1e-7 undrawn, and
    in a large vocabulary those have a visible share.

    Args:
        keys: typed keys (`jax.random.key`) [B, N].
        probs: [B, N, V], each over V a distribution; the scale is immaterial.

    Returns:
        int32 [B, N]. Where only one token is possible, that one, whatever the key.
    """
    scores = jnp.log(probs.astype(jnp.float32))

    def with_noise(scores):
        shape = scores.shape[-1:]
        noise = jax.vmap(jax.vmap(lambda key: jax.random.gumbel(key, shape, mode="high")))
        return scores + noise(keys)

    # Decided by counting, not by max(p) == 1: a large p may round to 1 beside possible tokens.
    undecided = jnp.any(jnp.sum(probs > 0, axis=-1) > 1)
    scores = lax.cond(undecided, with_noise, lambda scores: scores, scores)
    return argmax(scores)


def _where_needed(
    needed: Bool[Array, " B"],
    change: Callable[[jax.Array], jax.Array],
    logits: Float[Array, "B N V"],
) -> Float[Array, "B N V"]:
    """`change(logits)` in the rows that need it; not even computed if none does."""
    return lax.cond(
        jnp.any(needed),
        lambda x: jnp.where(needed[:, None, None], change(x), x),
        lambda x: x,
        logits,
    )


def _keep_argmax(logits: Float[Array, "B N V"]) -> Float[Array, "B N V"]:
    best = argmax(logits)[..., None]
    # 0 at the winner, by subtraction: a maximum that is not finite gives NaN, as in a softmax.
    above = logits - jnp.max(logits, axis=-1, keepdims=True)
    return jnp.where(jnp.arange(logits.shape[-1]) == best, above, -jnp.inf)


def argmax(x: Float[Array, "B N V"]) -> Int[Array, "B N"]:
    """Lowest id of the largest value, in two reductions: on a CPU a third of jnp.argmax's time.

    A row with NaN, which equals nothing, gives the last id.
    """
    last = x.shape[-1] - 1
    ids = lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
    return jnp.min(jnp.where(x == jnp.max(x, axis=-1, keepdims=True), ids, last), axis=-1)


def _keep_top_k(logits: Float[Array, "B N V"], top_k: Int[Array, " B"]) -> Float[Array, "B N V"]:
    ranks = _ordered(logits)

    def enough(threshold):
        return jnp.sum(ranks >= threshold[..., None], axis=-1) >= top_k[:, None]

    threshold = _largest(enough, logits.shape[:-1])
    return jnp.where(ranks >= threshold[..., None], logits, -jnp.inf)


def _keep_top_p(logits: Float[Array, "B N V"], top_p: Float[Array, " B"]) -> Float[Array, "B N V"]:
    # Thresholds on the logits, not on the probabilities: equal logits stay equal, whereas the
    # exponential of a vector's last lanes may differ in the last bit from that of its others.
    ranks = _ordered(logits)
    probs = jax.nn.softmax(logits, axis=-1)

    def enough(threshold):
        mass = jnp.sum(jnp.where(ranks >= threshold[..., None], probs, 0.0), axis=-1)
        return mass >= top_p[:, None]

    threshold = _largest(enough, logits.shape[:-1])
    return jnp.where(ranks >= threshold[..., None], logits, -jnp.inf)


def _ordered(x: jax.Array) -> jax.Array:
    """Unsigned integers in the order of the float32 numbers x, with -0.0 equal to 0.0."""
    bits = lax.bitcast_convert_type(jnp.where(x == 0, 0.0, x), jnp.uint32)
    sign = jnp.uint32(1 << 31)
    return jnp.where(bits >= sign, ~bits, bits | sign)


def _largest(holds: Callable[[jax.Array], jax.Array], shape: tuple[int, ...]) -> jax.Array:
    """The largest uint32 thresholds that satisfy `holds`; 0 where none does.

    `holds` must be true up to some threshold and false beyond it. Settling one bit at a time from
    the top needs 32 passes over the vocabulary and finds the exact value; a sort of the
    vocabulary costs more, and with a traced k nothing shorter than a full sort would do.
    """

    def settle(i, found):
        trial = found | (jnp.uint32(1 << 31) >> i.astype(jnp.uint32))
        return jnp.where(holds(trial), trial, found)

    return lax.fori_loop(0, 32, settle, jnp.zeros(shape, jnp.uint32))
