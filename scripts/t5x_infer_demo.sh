#!/usr/bin/env bash
# Runs T5X's infer on the Debian test split with the shipped pair, first plainly, then speculatively,
# and says how many rows are identical and how long both took.
#
#   scripts/t5x_infer_demo.sh [--mode greedy|coupled] [--limit N] [--batch N] [--gamma G]
#                             [--corpus NAME] [--json FILE] [--out DIR] [-- ARGUMENT ...]
#
# --limit decodes the first N rows alone. NAME is debian_ende, or descriptions_ende. DIR is new. What
# follows -- goes to both runs, for instance --gin.TOPK=20. The environment needs T5X
# (scripts/install_t5x.py), and NAME.test.tsv in the folder SPECDEC_DATA (data unless set;
# scripts/build_data.sh makes it). PYTHON names the interpreter.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3} mode=greedy corpus=debian_ende limit="" batch=8 gamma=3 json="" out=""
while [ $# -gt 0 ]; do
  case $1 in
    --mode | --corpus | --limit | --batch | --gamma | --json | --out)
      [ $# -gt 1 ] || { echo "error: $1 needs a value" >&2; exit 2; }
      printf -v "${1#--}" %s "$2"; shift 2 ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --) shift; break ;;
    *) echo "error: unknown argument $1; --help lists them" >&2; exit 2 ;;
  esac
done
case $mode in
  greedy) temperature=0.0 ;;
  coupled) temperature=1.0 ;;
  *) echo "error: --mode is $mode, but must be greedy or coupled" >&2; exit 2 ;;
esac
out=$(realpath -m "${out:-$(mktemp -d)}")
# T5X leaves out what an output folder says is done, be it by other models.
[ -z "$(ls -A "$out" 2>/dev/null)" ] || { echo "error: $out is not empty: give a new --out" >&2; exit 2; }
mkdir -p "$out"
SPECDEC_DATA=$(realpath -m "${SPECDEC_DATA:-$root/data}")
export SPECDEC_DATA PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} TF_CPP_MIN_LOG_LEVEL=2
for role in target draft; do
  "$python" -m specdec_jax convert "ende_$role" "$out/$role/checkpoint_1" --format t5x --dtype float32
done

infer() { # name of the run, then its own gin files and bindings
  local name=$1; shift
  echo "t5x.infer, $name ..."
  mkdir "$out/$name"
  "$python" -m t5x.infer --gin_search_paths="$root" --gin_file=gin_configs/runs/"$name".gin \
    --gin_file=gin_configs/targets/ende.gin --gin_file=gin_configs/drafts/ende.gin \
    --gin.MIXTURE_OR_TASK_NAME="'specdec_$corpus'" \
    --gin.TASK_FEATURE_LENGTHS="{'inputs': 128, 'targets': 96}" \
    --gin.CHECKPOINT_PATH="'$out/target/checkpoint_1'" --gin.INFER_OUTPUT_DIR="'$out/$name'" \
    --gin.DRAFT_CHECKPOINT_PATH="'$out/draft/checkpoint_1'" --gin.GAMMA="$gamma" \
    --gin.DTYPE="'float32'" --gin.BATCH_SIZE="$batch" --gin.TEMPERATURE="$temperature" \
    --gin.RULE="'coupled'" --gin.utils.DatasetConfig.split="'test${limit:+[:$limit]}'" \
    --gin.infer.checkpoint_period=10 --gin.write_inferences_to_file.output_ids=True "$@" \
    2>&1 | tee "$out/$name/log" | sed -un 's/^.*\(specdec_.* lines, .* left\)$/  \1/p' >&2 ||
    { tail -n 20 "$out/$name/log" >&2; exit 1; }
}

for name in infer_baseline infer_speculative; do infer "$name" "$@"; done
exec "$python" -m specdec_jax.t5x_plugin.compare "$out/infer_baseline" "$out/infer_speculative" \
  --target ende_target ${json:+--json "$json"}
