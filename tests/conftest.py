import jax
import pytest


@pytest.fixture(autouse=True, scope="session")
def strict_arithmetic():
    """No silent promotion: an int32 that meets a float32 by accident is a bug."""
    jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(scope="module")
def fast_compilation():
    """For tiny models, of whose tests' time optimising the programs would take most."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
