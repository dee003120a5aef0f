#!/usr/bin/env bash
# Makes .venv with the test extras and T5X, checks style and types, and runs all tests.
#
#   scripts/test.sh [pytest arguments]
set -euo pipefail
. "$(dirname "$0")/environment.sh" all,t5x,test
cd "$root"
python scripts/install_t5x.py
ruff check .
ruff format --check .
pyright --pythonpath "$(command -v python)"
exec python -m pytest --numprocesses 2 --dist loadgroup "$@"
