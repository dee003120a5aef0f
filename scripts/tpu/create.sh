#!/usr/bin/env bash
# Creates a TPU VM, unless one of that name is there. It costs its chips until scripts/tpu/delete.sh.
#
#   scripts/tpu/create.sh --tpu NAME --zone ZONE --type v4-8 [--project PROJECT] [--spot 1]
#     [--version tpu-ubuntu2204-base] [--dry-run]
#
# Needs gcloud, logged in to a project with a quota for the type. v4-8 has 4 chips of 32 GB, enough
# for the experiments; to fine-tune XXL takes a v4-32 or more.
set -euo pipefail
. "$(dirname "$0")/vm.sh"
options="$vm_options SPOT VERSION"
arguments "$@"
need TPU ZONE TYPE
if [ -z "$DRY_RUN" ] && vm describe "$TPU" --format 'value(state)' >/dev/null 2>&1; then
  echo "$TPU is there already" >&2
else
  vm create "$TPU" --accelerator-type "$TYPE" --version "${VERSION:-tpu-ubuntu2204-base}" \
    ${SPOT:+--spot}
fi
echo "$TPU costs $(chips_of "$TYPE") chip-hours an hour from now on" >&2
