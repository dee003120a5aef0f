import dataclasses

import jax
import pytest
from tiny_t5s import CONFIGS, random_t5

from specdec_jax.t5.model import T5


@pytest.fixture(params=sorted(CONFIGS))
def model(request) -> T5:
    return random_t5(CONFIGS[request.param], vocab_size=37)


@pytest.fixture
def model_1_1() -> T5:
    return random_t5(CONFIGS["1.1"])


@pytest.fixture
def big_number(model_1_1) -> T5:
    """7e4 in one `wo`: representable in bfloat16 and float32, not in float16."""
    params = jax.tree.map(lambda x: x, model_1_1.params)
    wo = params["decoder"]["layers_1"]["mlp"]["wo"]
    wo["kernel"] = wo["kernel"].at[0, 0].set(7e4)
    return dataclasses.replace(model_1_1, params=params)
