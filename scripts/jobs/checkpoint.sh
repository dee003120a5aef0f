#!/usr/bin/env bash
# Puts a public T5 1.1 where the other scripts look for it: MODELS/pretrained/SIZE/checkpoint_1000000.
# T5X's own checkpoint is copied, or Hugging Face's converted. Run again, it copies what is missing.
#
#   scripts/jobs/checkpoint.sh --size small|base|large|xl|xxl --models DIR [--from t5x|hf]
#     [--work DIR] [--dry-run]
#
# DIR is a folder or gs://...; t5x needs gcloud, hf needs uvx and as much room in --work (hf in the
# current folder) as two copies of the model. No accelerator is used.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/scripts/jobs/job.sh"
options="SIZE MODELS FROM WORK"
arguments "$@"
need SIZE MODELS
case $SIZE in
  small | base | large | xl | xxl) ;;
  *) fail "--size is $SIZE, but must be small, base, large, xl or xxl" ;;
esac
FROM=${FROM:-t5x} WORK=${WORK:-hf} step=checkpoint_1000000
to=$MODELS/pretrained/$SIZE/$step
case $FROM in
  t5x) source=gs://t5-data/pretrained_models/t5x/t5_1_1_$SIZE/$step ;;
  hf)
    case $MODELS in gs://*) source=$WORK/$SIZE/$step ;; *) source=$to ;; esac
    # The conversion is there as a whole or not at all.
    if ! exists "$source"; then
      run uvx --from huggingface_hub hf download "google/t5-v1_1-$SIZE" --local-dir "$WORK/$SIZE/hf"
      PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} run "${PYTHON:-python3}" -m specdec_jax convert \
        "$WORK/$SIZE/hf" "$source" --format t5x --dtype float32
    fi ;;
  *) fail "--from is $FROM, but must be t5x or hf" ;;
esac
case $MODELS in gs://*) ;; *) run mkdir -p "$to" ;; esac
[ "$source" = "$to" ] || run gcloud storage rsync --recursive "$source" "$to"
