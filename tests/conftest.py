import jax
import pytest


@pytest.fixture(autouse=True, scope="session")
def strict_arithmetic():
    """No silent promotion: an int32 that meets a float32 by accident is a bug."""
    jax.config.update("jax_numpy_dtype_promotion", "strict")
