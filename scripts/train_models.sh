#!/usr/bin/env bash
# Reproduces the shipped models from Debian's packages: builds the corpora, then trains targets and
# drafts of both tasks. Takes about seven hours on two cores; stopped, it resumes.
#
#   scripts/train_models.sh [WORK]      WORK (default: build) gets data/, run/, models/ and curves/
set -euo pipefail
. "$(dirname "$0")/environment.sh" all
work=${1:-build}
mkdir -p "$work"
# Present once the corpora are complete.
[ -e "$work/data/corpus.json" ] || "$root/scripts/build_data.sh" --wide --out "$work/data"
exec specdec train --data "$work/data" --run "$work/run" --out "$work/models" --curves "$work/curves"
