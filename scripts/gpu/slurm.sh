#!/usr/bin/env bash
# Submits fine-tuning, or the twelve experiments, to Slurm. On a machine of one's own with one or more
# GPUs, scripts/jobs/finetune.sh and scripts/jobs/experiments.sh are called as they stand.
#
#   scripts/gpu/slurm.sh --job finetune --models DIR [--sizes "xxl large base small"]
#     [--tasks "ende cnndm"] [--steps 20000] [--nodes 1] [--gpus 8] [--hours 24] [--tfds DIR]
#     [--partition NAME] [--dry-run]
#   scripts/gpu/slurm.sh --job experiments --models DIR --out DIR [--limit 500] ...
#
# DIR is a file system that all nodes share, with pretrained/SIZE (scripts/jobs/checkpoint.sh). Each
# fine-tuning waits for the one before, and Slurm's limit does not end it: submitted again, it goes on.
# The environment is the submitting shell's; it needs jax[cuda12], the extras t5 and t5x, and T5X.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/scripts/jobs/job.sh"
options="JOB MODELS OUT SIZES TASKS STEPS LIMIT NODES GPUS HOURS TFDS PARTITION"
arguments "$@"
need JOB MODELS
NODES=${NODES:-1} GPUS=${GPUS:-8} HOURS=${HOURS:-24}

submit() { # name, nodes, GPUs of each, then a script and its arguments
  local name=$1 nodes=$2 gpus=$3; shift 3
  echo "$name: at most $((nodes * gpus * HOURS)) GPU-hours" >&2
  # A task for each GPU is what JAX expects of Slurm; --singleton is one job of a name at a time.
  run sbatch --job-name "specdec" --dependency singleton --nodes "$nodes" --time "$HOURS:00:00" \
    --ntasks-per-node "$gpus" --gpus-per-node "$gpus" ${PARTITION:+--partition "$PARTITION"} \
    --output "specdec_$name.%j.log" --requeue --wrap "srun --kill-on-bad-exit=1$(printf ' %q' "$@")"
}

case $JOB in
  finetune)
    for task in ${TASKS:-ende cnndm}; do
      for size in ${SIZES:-xxl large base small}; do
        submit "${task}_$size" "$NODES" "$GPUS" "$root/scripts/jobs/finetune.sh" --task "$task" \
          --size "$size" --models "$MODELS" --steps "${STEPS:-20000}" --distributed 1 \
          ${TFDS:+--tfds "$TFDS"} --chips $((NODES * GPUS)) --peak 989
      done
    done ;;
  experiments)
    need OUT
    # One device, as in the paper.
    submit table2 1 1 "$root/scripts/jobs/experiments.sh" --models "$MODELS" --out "$OUT" \
      --steps "${STEPS:-20000}" --limit "${LIMIT:-500}" ${TFDS:+--tfds "$TFDS"} --chips 1 ;;
  *) fail "--job is $JOB, but must be finetune or experiments" ;;
esac
