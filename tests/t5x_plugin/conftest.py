import importlib.util

import jax
import pytest

if importlib.util.find_spec("t5x") is None:
    raise pytest.UsageError("T5X is not installed: run `python scripts/install_t5x.py`.")


@pytest.fixture(autouse=True, scope="module")
def quick_compilation(fast_compilation):
    """Tiny models are decoded in less time than XLA needs to optimize their programs."""


@pytest.fixture(autouse=True)
def t5x_arithmetic():
    """T5X mixes dtypes freely, so the strict setting of the other tests is lifted."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(autouse=True, scope="module")
def generator():
    """T5X's InteractiveModel makes XLA's bit generator the default of the whole process."""
    before = jax.config.jax_default_prng_impl
    yield
    jax.config.update("jax_default_prng_impl", before)
