#!/usr/bin/env bash
# Runs the twelve experiments of Table 2 (gin_configs/experiments) and their four baselines on this
# machine, one after the other, and collects OUT/table.md. Run again, it goes on with the run that was
# cut, from its first example, since its time counts.
#
#   scripts/jobs/experiments.sh --models DIR --out OUT [--steps 20000] [--limit 500] [--tfds DIR]
#     [--partitions 1] [--chips N] [--dry-run]
#
# DIR, a folder or gs://..., has TASK/SIZE/checkpoint_N from scripts/jobs/finetune.sh, of xxl, large,
# base and small. The first LIMIT examples of each test split are decoded, one at a time, as in the
# paper. T5 XXL in bfloat16 takes 22 GB of a device. PYTHON names the interpreter.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/scripts/jobs/job.sh"
options="MODELS OUT STEPS LIMIT TFDS PARTITIONS CHIPS"
arguments "$@"
need MODELS OUT
step=checkpoint_$((1000000 + ${STEPS:-20000})) LIMIT=${LIMIT:-500} OUT=$(realpath -m "$OUT")
python=${PYTHON:-python3}
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
awk -v n="$LIMIT" -v c="${CHIPS:-1}" 'BEGIN {
  printf "estimate: at most %.1f chip-hours (16 runs of %d examples of 128 tokens, 10 ms each)\n",
    c * 16 * n * 128 * 0.01 / 3600, n }' >&2
cd "$root"

infer() { # name of the run, task of the checkpoints, then gin files and bindings
  local name=$1 task=$2 log=$OUT/$1/log; shift 2
  exists "$OUT/$name/done" && return
  run rm -rf "${OUT:?}/$name"
  run mkdir -p "$OUT/$name"
  [ -z "$DRY_RUN" ] || log=/dev/stderr
  echo "$name: $log tells lines, rate and time left" >&2
  run "$python" -m t5x.infer ${TFDS:+--tfds_data_dir="$TFDS"} --gin_search_paths="$root" "$@" \
    --gin.CHECKPOINT_PATH="'$MODELS/$task/xxl/$step'" --gin.INFER_OUTPUT_DIR="'$OUT/$name'" \
    --gin.BATCH_SIZE=1 --gin.utils.DatasetConfig.split="'test[:$LIMIT]'" \
    --gin.infer.checkpoint_period=50 --gin.write_inferences_to_file.output_ids=True \
    --gin.partitioning.PjitPartitioner.num_partitions="${PARTITIONS:-1}" \
    2>"$log" || { set -- $?; tail -n 20 "$log" >&2; exit "$1"; }
  mark "$OUT/$name/done"
}

for task in ende cnndm; do
  case $task in ende) full=specdec_wmt_ende ;; *) full=specdec_cnn_dailymail ;; esac
  for t in 0 1; do
    infer "baseline_${task}_t$t" "$task" --gin_file=gin_configs/runs/infer_baseline.gin \
      --gin_file=gin_configs/targets/t5_1_1_xxl.gin --gin.MIXTURE_OR_TASK_NAME="'$full'" \
      --gin.TASK_FEATURE_LENGTHS="{'inputs': 512, 'targets': 128}" --gin.TEMPERATURE="$t.0"
    for size in small base large; do
      name=table2_${task}_${size}_t$t
      infer "$name" "$task" --gin_file="gin_configs/experiments/$name.gin" \
        --gin.DRAFT_CHECKPOINT_PATH="'$MODELS/$task/$size/$step'"
      # Status 1 says that rows differ: they do when sampling, and by near-ties in bfloat16.
      run "$python" -m specdec_jax.t5x_plugin.compare "$OUT/baseline_${task}_t$t" "$OUT/$name" \
        --json "$OUT/$name.json" || [ $? -eq 1 ]
    done
  done
done
run "$python" scripts/jobs/table.py "$OUT"
