#!/usr/bin/env bash
# Fine-tunes T5 1.1 XXL, large, base and small on both tasks, on all workers of a TPU VM, with
# scripts/jobs/finetune.sh. Run again, after a preemption say, it goes on from the newest checkpoint.
#
#   scripts/tpu/finetune.sh --tpu NAME --zone ZONE --type v4-32 --bucket gs://BUCKET/DIR
#     [--sizes "xxl large base small"] [--tasks "ende cnndm"] [--steps 20000] [--project PROJECT]
#     [--dry-run]
#
# The bucket is the one of scripts/tpu/checkpoints.sh, and gets TASK/SIZE/checkpoint_N.
set -euo pipefail
. "$(dirname "$0")/vm.sh"
options="$vm_options BUCKET SIZES TASKS STEPS"
arguments "$@"
need TPU ZONE TYPE BUCKET
CHIPS=$(chips_of "$TYPE")
for task in ${TASKS:-ende cnndm}; do
  for size in ${SIZES:-xxl large base small}; do
    on all "scripts/jobs/finetune.sh$(quoted --task "$task" --size "$size" --models "$BUCKET" \
      --steps "${STEPS:-20000}" --tfds "$BUCKET/tfds" --distributed 1)"
  done
done
