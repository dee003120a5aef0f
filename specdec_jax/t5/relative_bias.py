"""Relative positions: buckets of distance, one learned number for each head and bucket.

Buckets are computed by numpy from static sizes, as T5X does: the logarithm in it rounds differently
on an accelerator, which would move a border between two buckets.
"""

from __future__ import annotations

import numpy as np


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
