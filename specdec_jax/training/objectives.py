"""What training minimises: nats per target token, padding left out."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from specdec_jax.sampling.types import Array, Float, Int

Divergence = Literal["forward_kl", "reverse_kl", "jensen_shannon", "total_variation"]


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


def distance(
    logits: Float[Array, "B N V"],
    teacher: Float[Array, "B N V"],
    target: Int[Array, "B N"],
    kind: Divergence = "forward_kl",
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the summed distance of two models over tokens that are not padding, and their number.

    p is the target model (the teacher), q the draft; positions are those of `target`. The draft's
    rejection rate is their total variation, 1 - beta (Theorem 3.5 of arXiv:2211.17192):

    * ``forward_kl``: KL(p || q), which bounds it by sqrt(KL / 2);
    * ``reverse_kl``: KL(q || p), likewise;
    * ``jensen_shannon``: KL(p || m) / 2 + KL(q || m) / 2 with m = (p + q) / 2;
    * ``total_variation``: sum |p - q| / 2, the rejection rate itself.

    Args:
        logits: of q, float32.
        teacher: logits of p, float32; they learn nothing.
        target: ids, 0 is padding.
        kind: which distance.
    """
    weight = (target > 0).astype(jnp.float32)
    log_q = jax.nn.log_softmax(logits, axis=-1)
    log_p = jax.nn.log_softmax(jax.lax.stop_gradient(teacher), axis=-1)
    p, q = jnp.exp(log_p), jnp.exp(log_q)
    if kind == "forward_kl":
        each = p * (log_p - log_q)
    elif kind == "reverse_kl":
        each = q * (log_q - log_p)
    elif kind == "jensen_shannon":
        log_m = jnp.logaddexp(log_p, log_q) - jnp.log(2.0)
        each = 0.5 * (p * (log_p - log_m) + q * (log_q - log_m))
    else:
        each = 0.5 * jnp.abs(p - q)
    return jnp.sum(jnp.sum(each, axis=-1) * weight), jnp.sum(weight)
