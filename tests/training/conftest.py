import jax
import pytest


@pytest.fixture(autouse=True)
def optax_arithmetic():
    """Optax's schedules mix integers and floats, so the strict setting of the tests is lifted."""
    with jax.numpy_dtype_promotion("standard"):
        yield
