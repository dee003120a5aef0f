#!/usr/bin/env bash
# Fine-tunes one public T5 1.1 on one task by T5X's own trainer, on all accelerators of this machine;
# or, with --distributed 1 on every host of a TPU slice or a Slurm job, on all of theirs. Run again,
# it goes on from the newest checkpoint, and does nothing once all steps are done.
#
#   scripts/jobs/finetune.sh --task ende|cnndm --size small|base|large|xl|xxl --models DIR
#     [--steps 20000] [--batch-size 128] [--partitions P] [--microbatches M] [--tfds DIR]
#     [--distributed 1] [--chips N] [--peak TFLOPS] [--dry-run]
#
# DIR, a folder or gs://..., has pretrained/SIZE/checkpoint_1000000 (scripts/jobs/checkpoint.sh) and
# gets TASK/SIZE. P devices share one copy of the model; a batch is worked off in M parts. --tfds has
# the data sets. TFLOPS (275, a TPU v4's) serves the estimate of the cost alone. PYTHON names the
# interpreter, which needs the extras t5 and t5x, and T5X (scripts/install_t5x.py).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/scripts/jobs/job.sh"
options="TASK SIZE MODELS STEPS BATCH_SIZE PARTITIONS MICROBATCHES TFDS DISTRIBUTED CHIPS PEAK"
arguments "$@"
need TASK SIZE MODELS
case $TASK in ende | cnndm) ;; *) fail "--task is $TASK, but must be ende or cnndm" ;; esac
# Parameters in millions; then devices of a copy, and parts of a batch, that fit into 32 GB each.
case $SIZE in
  small) set -- 77 1 1 ;; base) set -- 248 1 1 ;; large) set -- 783 2 2 ;;
  xl) set -- 2849 4 4 ;; xxl) set -- 11135 8 16 ;;
  *) fail "--size is $SIZE, but must be small, base, large, xl or xxl" ;;
esac
STEPS=${STEPS:-20000} BATCH_SIZE=${BATCH_SIZE:-128} PARTITIONS=${PARTITIONS:-$2}
MICROBATCHES=${MICROBATCHES:-$3} PEAK=${PEAK:-275}
# A token passes the encoder or the decoder, each about half of the parameters.
awk -v m="$1" -v n="$((STEPS * BATCH_SIZE * 640))" -v p="$PEAK" 'BEGIN {
  printf "estimate: %.1f chip-hours (6 FLOP a token and parameter, 40 %% of %d TFLOP/s)\n",
    6 * m * 1e6 / 2 * n / (0.4 * p * 1e12) / 3600, p }' >&2

first=1000000 last=$((1000000 + STEPS)) out=$MODELS/$TASK/$SIZE
if exists "$out/done_$last"; then
  echo "$out has $STEPS steps already" >&2
  exit
fi
case $MODELS in gs://*) ;; *) run mkdir -p "$out" ;; esac
cd "$root"
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} run "${PYTHON:-python3}" -m t5x.train \
  ${DISTRIBUTED:+--multiprocess_gpu} ${TFDS:+--tfds_data_dir="$TFDS"} --gin_search_paths="$root" \
  --gin_file="gin_configs/runs/finetune_$TASK.gin" \
  --gin_file="gin_configs/targets/t5_1_1_$SIZE.gin" \
  --gin.MODEL_DIR="'$out'" --gin.PRETRAIN_STEPS="$first" --gin.TRAIN_STEPS="$last" \
  --gin.INITIAL_CHECKPOINT_PATH="'$MODELS/pretrained/$SIZE/checkpoint_$first'" \
  --gin.BATCH_SIZE="$BATCH_SIZE" --gin.trainer.Trainer.num_microbatches="$MICROBATCHES" \
  --gin.partitioning.PjitPartitioner.num_partitions="$PARTITIONS"
mark "$out/done_$last"
