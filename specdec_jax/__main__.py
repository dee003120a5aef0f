"""`python -m specdec_jax` is the command line."""

from specdec_jax.cli import run

if __name__ == "__main__":
    run()
