#!/usr/bin/env bash
# Deletes a TPU VM and all that is on its disks; what is in the bucket stays.
#
#   scripts/tpu/delete.sh --tpu NAME --zone ZONE [--project PROJECT] [--dry-run]
set -euo pipefail
. "$(dirname "$0")/vm.sh"
options=$vm_options
arguments "$@"
need TPU ZONE
vm delete "$TPU" --quiet
