#!/usr/bin/env bash
# Puts public T5 1.1 checkpoints and the two data sets into a bucket, from worker 0 of a TPU VM.
# Run again, it brings what is missing.
#
#   scripts/tpu/checkpoints.sh --tpu NAME --zone ZONE --type v4-8 --bucket gs://BUCKET/DIR
#     [--sizes "xxl large base small"] [--from t5x|hf] [--project PROJECT] [--dry-run]
#
# The VM's service account must be allowed to write to the bucket. hf takes room for two copies of a
# model on the worker's disk, which is too small for xxl unless a larger one is attached.
set -euo pipefail
. "$(dirname "$0")/vm.sh"
options="$vm_options BUCKET SIZES FROM"
arguments "$@"
need TPU ZONE TYPE BUCKET
CHIPS=$(chips_of "$TYPE")
for size in ${SIZES:-xxl large base small}; do
  on 0 "scripts/jobs/checkpoint.sh$(quoted --size "$size" --models "$BUCKET" --from "${FROM:-t5x}")"
done
for data in wmt_t2t_translate/de-en:1.0.0 cnn_dailymail:3.4.0; do
  on 0 "python -c 'import sys, tensorflow_datasets as t; t.load(sys.argv[1], data_dir=sys.argv[2])'$(quoted "$data" "$BUCKET/tfds")"
done
