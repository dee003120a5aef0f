#!/usr/bin/env bash
# Runs T5X's infer on the Debian test split with the shipped pair, first plainly, then speculatively,
# and says how many rows are identical and how long both took.
#
#   scripts/t5x_infer_demo.sh [--mode greedy|coupled] [--limit N] [--batch N] [--gamma G]
#                             [--json FILE] [--out DIR]
#
# --limit decodes the first N rows alone. The environment needs T5X (scripts/install_t5x.py) and the
# folder of debian_ende.test.tsv in SPECDEC_DATA (scripts/build_data.sh; data unless set). PYTHON names
# the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3} mode=greedy limit= batch=8 gamma=3 json= out=
while [ $# -gt 0 ]; do
  case $1 in
    --mode | --limit | --batch | --gamma | --json | --out)
      [ $# -gt 1 ] || { echo "error: $1 needs a value" >&2; exit 2; }
      printf -v "${1#--}" %s "$2"; shift 2 ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "error: unknown argument $1; --help lists them" >&2; exit 2 ;;
  esac
done
case $mode in
  greedy) temperature=0.0 ;;
  coupled) temperature=1.0 ;;
  *) echo "error: --mode is $mode, but must be greedy or coupled" >&2; exit 2 ;;
esac
out=${out:-$(mktemp -d)}
mkdir -p "$out"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} TF_CPP_MIN_LOG_LEVEL=2
for role in target draft; do
  [ -d "$out/$role/checkpoint_1" ] || "$python" -m specdec_jax convert \
    "ende_$role" "$out/$role/checkpoint_1" --format t5x --dtype float32
done

infer() { # name of the run, then its own gin files and bindings
  local name=$1; shift
  echo "t5x.infer, $name ..."
  mkdir -p "$out/$name"
  "$python" -m t5x.infer --gin_search_paths="$PWD" "$@" \
    --gin_file=gin_configs/targets/debian_ende.gin \
    --gin.MIXTURE_OR_TASK_NAME="'specdec_debian_ende'" \
    --gin.TASK_FEATURE_LENGTHS="{'inputs': 128, 'targets': 96}" \
    --gin.CHECKPOINT_PATH="'$out/target/checkpoint_1'" --gin.INFER_OUTPUT_DIR="'$out/$name'" \
    --gin.DTYPE="'float32'" --gin.BATCH_SIZE="$batch" --gin.TEMPERATURE="$temperature" \
    --gin.infer.checkpoint_period=10 --gin.write_inferences_to_file.output_ids=True \
    --gin.utils.DatasetConfig.split="'test${limit:+[:$limit]}'" \
    2>"$out/$name/log" || { tail -n 20 "$out/$name/log" >&2; exit 1; }
}

infer plain --gin_file=gin_configs/runs/infer_baseline.gin
infer speculative --gin_file=gin_configs/runs/infer_speculative.gin \
  --gin_file=gin_configs/drafts/debian_ende.gin \
  --gin.DRAFT_CHECKPOINT_PATH="'$out/draft/checkpoint_1'" \
  --gin.GAMMA="$gamma" --gin.RULE="'coupled'"
exec "$python" -m specdec_jax.t5x_plugin.compare "$out/plain" "$out/speculative" ${json:+--json "$json"}
