#!/usr/bin/env bash
# Translates real English sentences with the shipped models, first plainly, then speculatively, and
# shows what the draft guessed, whether the outputs are identical, and how long both took.
#
#   scripts/demo.sh [--sentences N] [--gamma G] [--shape small|base|large|own] [--temperature T]
#                   [--json FILE] [--help]
#
# The first run makes .venv (uv or pip) and installs the package into it.
set -euo pipefail
. "$(dirname "$0")/environment.sh" t5
exec python -m specdec_jax demo "$@"
