#!/usr/bin/env bash
# Makes .venv with the test extras, checks style and types, and runs all tests.
#
#   scripts/test.sh [pytest arguments]
set -euo pipefail
. "$(dirname "$0")/environment.sh" all,test
cd "$root"
ruff check .
ruff format --check .
pyright --pythonpath "$(command -v python)"
exec python -m pytest --numprocesses 2 "$@"
