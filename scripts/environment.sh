# shellcheck shell=bash
# Sourced by the other scripts: makes .venv beside the package with the extras named in $1, using uv
# where there is one and pip elsewhere, and puts it first in PATH. Remembers what it has installed.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${SPECDEC_VENV:-$root/.venv}
stamp="$venv/.installed-${1//,/-}"
if [ ! -e "$stamp" ] || [ "$root/pyproject.toml" -nt "$stamp" ]; then
  echo "installing specdec-jax[$1] into $venv ..." >&2
  if command -v uv >/dev/null 2>&1; then
    [ -x "$venv/bin/python" ] || uv venv --quiet --python ">=3.11" "$venv"
    uv pip install --quiet --python "$venv/bin/python" -e "${root}[$1]"
  else
    [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e "${root}[$1]"
  fi
  touch "$stamp"
fi
export PATH="$venv/bin:$PATH"
