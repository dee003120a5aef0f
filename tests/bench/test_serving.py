"""Serving on paper: held against the roofline by hand, and against what must be true of any."""

import itertools

import pytest

from specdec_jax.aot import serving
from specdec_jax.aot.topology import CHIPS, LAYER_SECONDS, Topology, topology
from specdec_jax.t5 import preset

XXL, SMALL = preset("xxl"), preset("small")


def predicted(place="v5e:2x2", *, alpha=0.75, **more):
    where = topology(place) if isinstance(place, str) else place
    return list(serving.serving(where, XXL, SMALL, alpha=alpha, **more))


def test_without_caches_to_speak_of_a_step_is_weights_over_bandwidth():
    (row,) = predicted("v4:1x1x1", batches=(1,), source_length=1, max_tokens=1)
    step = 2 * XXL.decoder_step_weights / CHIPS["v4"].bandwidth + 24 * LAYER_SECONDS
    # The caches of 1 + 18 slots and the norms are a fiftieth of a percent of it.
    assert row.plain == pytest.approx(1 / step, rel=1e-3)
    draft = 2 * SMALL.decoder_step_weights / CHIPS["v4"].bandwidth + 8 * LAYER_SECONDS
    tokens = (1 - 0.75 ** (row.gamma + 1)) / (1 - 0.75)
    assert row.speculative == pytest.approx(tokens / (step + row.gamma * draft), rel=1e-3)
    assert row.per_chip == row.speculative


def test_more_rows_cost_each_of_them_and_help_all():
    rows = predicted()
    assert [row.batch for row in rows] == list(serving.BATCHES)
    for fewer, more in itertools.pairwise(rows):
        assert more.plain < fewer.plain
        assert more.per_chip > fewer.per_chip
        assert more.hbm_bytes > fewer.hbm_bytes
        assert more.gamma <= fewer.gamma


def test_where_arithmetic_decides_speculation_does_not_pay():
    # A chip that computes as slowly as it reads: any guess costs what a token costs.
    slow = CHIPS["v4"]._replace(flops=CHIPS["v4"].bandwidth)
    (row,) = predicted(Topology("slow", slow, 1), batches=(4,))
    assert (row.gamma, row.speedup) == (0, 1.0)
    (row,) = predicted(alpha=0.0, batches=(1,))
    assert row.gamma == 0


def test_what_does_not_fit_is_told_and_not_shown():
    rows = predicted("v5e:1x1", batches=(1,))
    assert not rows[0].fits
    assert "v5e" not in serving.table(rows)
    rows = predicted("v4:1x1x1", batches=(32, 64))
    assert [row.fits for row in rows] == [True, False]
    found = serving.as_records(rows)
    assert found[0]["tokens_per_second_per_chip"] == 32 * found[0]["speculative"]
    assert "| v4:1x1x1 | 1 | 32 |" in serving.table(rows)
    assert "| v4:1x1x1 | 1 | 64 |" not in serving.table(rows)
