#!/usr/bin/env bash
# Makes .venv-peers with T5X, PyTorch, transformers and CTranslate2 (3 GB), and runs bench_peers.py.
#
#   scripts/bench_peers.sh --shape base --json results/cpu/peers_base.json
set -euo pipefail
SPECDEC_VENV=${SPECDEC_VENV:-$(cd "$(dirname "$0")/.." && pwd)/.venv-peers}
. "$(dirname "$0")/environment.sh" all,t5x
if ! python -c "import torch, transformers, ctranslate2" 2>/dev/null; then
  packages="torch==2.13.0 transformers==5.24.0 ctranslate2"
  # shellcheck disable=SC2086
  if command -v uv >/dev/null; then uv pip install --quiet --python "$venv/bin/python" $packages; else python -m pip install --quiet $packages; fi
fi
python "$root/scripts/install_t5x.py"
exec python "$root/scripts/bench_peers.py" "$@"
