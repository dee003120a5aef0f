import numpy as np
import pytest

from specdec_jax.bench import devices
from specdec_jax.checkpoints import native
from specdec_jax.checkpoints.tensors import Checkpoint, Tensor
from specdec_jax.errors import SpecdecError
from specdec_jax.t5.config import preset

# Bytes in bfloat16 that a decoder step of T5 v1.1 reads, and its layers.
DRAFTS = {"small": (77.0e6, 8), "base": (247.6e6, 12), "large": (783.0e6, 24)}
XXL = 11.14e9


@pytest.mark.parametrize(("size", "c"), [("small", "0.02"), ("base", "0.04"), ("large", "0.11")])
def test_the_estimate_on_the_paper_s_device_gives_the_paper_s_c(size, c):
    weights, layers = DRAFTS[size]
    costs = devices.estimate_costs(
        weights, target_bytes=XXL, device="tpu-v4", draft_layers=layers, target_layers=24
    )
    assert f"{costs['c']:.2f}" == c
    assert costs["c_low"] < costs["c"] < costs["c_high"]
    # 1.2 TB/s, and 16 microseconds for each of the target's layers.
    assert costs["target_step"] == pytest.approx(XXL / 1.2e12 + 24 * 16e-6)


@pytest.mark.parametrize("size", DRAFTS)
def test_bytes_alone_give_a_range_that_holds_the_paper_s_c(size):
    weights, _ = DRAFTS[size]
    costs = devices.estimate_costs(weights, target_bytes=XXL, device="h100")
    assert costs["c_low"] == pytest.approx(weights / XXL)
    measured = {"small": 0.02, "base": 0.04, "large": 0.11}[size]
    assert costs["c_low"] < measured < costs["c_high"]
    assert costs["target_step"] == pytest.approx(XXL / 3.35e12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: devices.estimate_costs(1.0, target_bytes=2.0, device="abacus"),
            "device 'abacus' is not known and must be one of tpu-v4, tpu-v5e",
        ),
        (
            lambda: devices.estimate_costs(0.0, target_bytes=2.0, device="h100"),
            "draft is 0 and must be a number above 0",
        ),
        (
            lambda: devices.estimate_costs(
                1.0, target_bytes=2.0, device="tpu-v4", draft_layers=0, target_layers=24
            ),
            "draft_layers is 0 and must be at least 1",
        ),
        (
            lambda: devices.costs_of_checkpoints("target", None, None),
            "draft and device not given, and an estimate of c needs target, draft and device",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(SpecdecError) as error:
        call()
    assert message in str(error.value)


def test_two_checkpoints_are_weighed_by_their_headers(tmp_path):
    for name, size in (("target", "xxl"), ("draft", "small")):
        # The sizes are the paper's; no parameter is read, so none need be there.
        tensors = {"unread": Tensor.of(np.zeros(1, np.float32))}
        config = preset(size)
        folder = tmp_path / name
        checkpoint = Checkpoint(native.FORMAT, folder, config, tensors, config.vocab_size)
        native.write(folder, checkpoint, dtype="float32")
    costs = devices.costs_of_checkpoints(tmp_path / "target", tmp_path / "draft", "tpu-v4")
    assert f"{costs['c']:.2f}" == "0.02"
    assert costs["layers"]
    assert costs["target_step"] == pytest.approx(XXL / 1.2e12 + 24 * 16e-6, rel=1e-3)
    wide = devices.costs_of_checkpoints(
        tmp_path / "target", tmp_path / "draft", "h100", weight_bytes=4
    )
    assert wide["target_step"] == pytest.approx(2 * XXL / 3.35e12, rel=1e-3)
