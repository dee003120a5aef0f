"""What training minimises: nats per target token, padding left out."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from specdec_jax.sampling.types import Array, Float, Int


def shift_right(target: Int[Array, "B N"]) -> Int[Array, "B N"]:
    """Return the decoder's input for a target: the start token 0, then all but the last token."""
    return jnp.pad(target, ((0, 0), (1, 0)))[:, :-1]


def cross_entropy(
    logits: Float[Array, "B N V"], target: Int[Array, "B N"], smoothing: float = 0.0
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the sum of -log p(target) over tokens that are not padding, and their number.

    Args:
        logits: float32.
        target: ids, 0 is padding.
        smoothing: mass in [0, 1) moved from the target to the uniform distribution.
    """
    weight = (target > 0).astype(jnp.float32)
    normal = jax.nn.logsumexp(logits, axis=-1)
    # A one-hot sum and not take_along_axis: the gradient of a gather is a scatter, slow on a CPU.
    picked = jnp.sum(jax.nn.one_hot(target, logits.shape[-1], dtype=logits.dtype) * logits, axis=-1)
    loss = normal - (1.0 - smoothing) * picked - smoothing * jnp.mean(logits, axis=-1)
    return jnp.sum(loss * weight), jnp.sum(weight)


def forward_kl(
    logits: Float[Array, "B N V"], teacher: Float[Array, "B N V"], target: Int[Array, "B N"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the sum of KL(p || q) over tokens that are not padding, and their number.

    p is the target model (the teacher), q the draft; positions are those of `target`. KL bounds the
    rejection rate: total variation, which is 1 - beta (Theorem 3.5 of arXiv:2211.17192), is at most
    sqrt(KL / 2).
    """
    weight = (target > 0).astype(jnp.float32)
    log_q = jax.nn.log_softmax(logits, axis=-1)
    log_p = jax.nn.log_softmax(jax.lax.stop_gradient(teacher), axis=-1)
    loss = jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)
    return jnp.sum(loss * weight), jnp.sum(weight)
