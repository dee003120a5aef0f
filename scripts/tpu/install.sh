#!/usr/bin/env bash
# Installs the last commit of this repository, JAX for TPUs and T5X on all workers of a TPU VM, and
# lets them count their devices together. Run again, it brings another commit.
#
#   scripts/tpu/install.sh --tpu NAME --zone ZONE --type v4-8 [--project PROJECT] [--dry-run]
set -euo pipefail
. "$(dirname "$0")/vm.sh"
options=$vm_options
arguments "$@"
need TPU ZONE TYPE
CHIPS=$(chips_of "$TYPE")
archive=$(mktemp -d)/specdec.tar.gz
run git -C "$root" archive --format tar.gz --output "$archive" HEAD
vm scp "$archive" "$TPU:specdec.tar.gz" --worker all
vm ssh "$TPU" --worker all --command \
  "mkdir -p specdec && tar -xzf specdec.tar.gz -C specdec && python3 -m pip install --user --quiet uv"
on all "uv pip install --quiet --python .venv/bin/python 'jax[tpu]' && python scripts/install_t5x.py"
on all "python -c 'import jax; jax.distributed.initialize(); print(jax.device_count(), jax.devices()[0])'"
