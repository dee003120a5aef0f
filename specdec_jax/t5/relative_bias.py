"""Relative positions: buckets of distance, one learned number for each head and bucket.

Buckets are computed by numpy from static sizes, as T5X does: the logarithm in it rounds differently
on an accelerator, which would move a border between two buckets.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.linen import partitioning

from specdec_jax.sampling.types import Array, Float
from specdec_jax.t5.config import T5Config


def bucket(
    distance: np.ndarray, *, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128
) -> np.ndarray:
    """Return the bucket of each signed distance *key position - query position*.

    The first half of the buckets holds exact distances, the second half grows logarithmically up
    to `max_distance`; the last one takes all that is farther.

    Args:
        distance: integers of any shape.
        bidirectional: True in the encoder, where half of the buckets serve keys to the right;
            False in the decoder, where such keys fall into bucket 0 (and are masked).
        num_buckets: of the table.
        max_distance: from which on distances share the last bucket.

    Returns:
        int32, same shape, in [0, num_buckets).

    Example:
        >>> bucket(np.array([0, -1, -15, -16, -20, -500, 3]), bidirectional=False).tolist()
        [0, 1, 15, 16, 17, 31, 0]
        >>> bucket(np.array([0, -1, 1, 500]), bidirectional=True).tolist()
        [0, 1, 17, 31]
    """
    behind = -np.asarray(distance)
    offset = np.zeros(behind.shape, np.int32)
    if bidirectional:
        num_buckets //= 2
        offset = (behind < 0).astype(np.int32) * num_buckets
        behind = np.abs(behind)
    else:
        behind = np.maximum(behind, 0)
    exact = num_buckets // 2
    # The tiny addend only keeps log(0) quiet: distance 0 takes the exact branch below.
    ratio = np.log(behind.astype(np.float32) / exact + np.finfo(np.float32).eps)
    far = exact + (ratio / np.log(max_distance / exact) * (num_buckets - exact)).astype(np.int32)
    far = np.minimum(far, num_buckets - 1)
    return np.asarray(offset + np.where(behind < exact, behind, far), np.int32)


def distances(count: int) -> np.ndarray:
    """Return [N, N], at [n, t] the distance of key t from query n, both of `count` positions."""
    return np.arange(count)[None, :] - np.arange(count)[:, None]


class RelativeBias(nn.Module):
    """A table of relative biases, [H, buckets]: a whole stack's or, in umT5, one layer's.

    Attributes:
        config: for the table's sizes.
        bidirectional: True in the encoder.
    """

    config: T5Config
    bidirectional: bool

    def setup(self):
        """Declare the table."""
        cfg = self.config
        self.rel_embedding = partitioning.param_with_axes(
            "rel_embedding",
            nn.initializers.variance_scaling(1.0, "fan_avg", "uniform"),
            (cfg.num_heads, cfg.relative_attention_num_buckets),
            jnp.float32,
            axes=("heads", "relpos_buckets"),
        )

    def __call__(self, distance: np.ndarray) -> Float[Array, "H ..."]:
        """Return the bias of each head at static distances (key minus query)."""
        buckets = bucket(
            distance,
            bidirectional=self.bidirectional,
            num_buckets=self.config.relative_attention_num_buckets,
            max_distance=self.config.relative_attention_max_distance,
        )
        # float32, as the masks that it is added to are, whatever the parameters are stored in.
        return self.rel_embedding[:, buckets].astype(jnp.float32)
