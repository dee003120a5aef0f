#!/usr/bin/env bash
# Runs the twelve experiments of Table 2 and their baselines on one chip of a TPU VM, as the paper
# did, with scripts/jobs/experiments.sh, and brings the records and the table back. Run again, it goes
# on with the run that was cut.
#
#   scripts/tpu/experiments.sh --tpu NAME --zone ZONE --type v4-8 --bucket gs://BUCKET/DIR --out DIR
#     [--steps 20000] [--limit 500] [--project PROJECT] [--dry-run]
#
# The bucket is the one of scripts/tpu/finetune.sh; DIR gets table.md and a record of each experiment.
set -euo pipefail
. "$(dirname "$0")/vm.sh"
options="$vm_options BUCKET OUT STEPS LIMIT"
arguments "$@"
need TPU ZONE TYPE BUCKET OUT
CHIPS=$(chips_of "$TYPE")
one_chip="TPU_CHIPS_PER_PROCESS_BOUNDS=1,1,1 TPU_PROCESS_BOUNDS=1,1,1 TPU_VISIBLE_DEVICES=0"
on 0 "$one_chip scripts/jobs/experiments.sh$(quoted --models "$BUCKET" --out results_table2 \
  --steps "${STEPS:-20000}" --limit "${LIMIT:-500}" --tfds "$BUCKET/tfds" --chips "$CHIPS")"
on 0 "tar -czf ~/table2.tar.gz -C results_table2 table.md \$(cd results_table2 && ls *.json)"
run mkdir -p "$OUT"
vm scp "$TPU:table2.tar.gz" "$OUT/table2.tar.gz" --worker 0
run tar -xzf "$OUT/table2.tar.gz" -C "$OUT"
