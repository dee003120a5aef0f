# Sourced by the other scripts of this folder: the TPU VM that they are about.
# shellcheck shell=bash disable=SC2034,SC2153
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/scripts/jobs/job.sh"
vm_options="TPU ZONE PROJECT TYPE"

vm() { # a verb of gcloud, then its arguments
  local verb=$1; shift
  run gcloud compute tpus tpu-vm "$verb" "$@" --zone "$ZONE" ${PROJECT:+--project "$PROJECT"}
}

on() { # worker (a number, or all) and a command, run in the repository there
  vm ssh "$TPU" --worker "$1" \
    --command "set -e; cd ~/specdec; export PATH=\$HOME/.local/bin:\$PATH; . scripts/environment.sh t5,t5x; $2"
}

quoted() { printf ' %q' "$@"; } # arguments for the command of `on`
