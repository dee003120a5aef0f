#!/usr/bin/env bash
# Builds the corpora from Debian's package archive: descriptions and synopses by default (17 MB to
# fetch, a minute), message catalogs and man pages too with --wide (300 MB, two minutes).
#
#   scripts/build_data.sh [--out DIR] [--work DIR] [--wide] [--quiet]
#
# DIR is data in the current folder, and data/work for the downloads, unless given.
# Needs Debian or Ubuntu for apt-get; no privilege, and nothing of the system changes. PYTHON names
# the interpreter.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" -m specdec_jax.corpus "$@"
