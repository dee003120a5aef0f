# Sourced by the scripts of long jobs: arguments, --dry-run, what is done already, and what it costs.
#
# A script sets $options to the names of its variables. Each comes from its argument (--batch-size 8
# sets BATCH_SIZE), from the environment (SPECDEC_BATCH_SIZE), or from the script's default; $CHIPS is
# what is paid for.
# shellcheck shell=bash disable=SC2154
CHIPS=
fail() { echo "error: $1" >&2; exit 2; }
arguments() { # "$@" of the script
  local name from
  for name in DRY_RUN $options; do
    from=SPECDEC_$name
    printf -v "$name" %s "${!from:-}"
  done
  while [ $# -gt 0 ]; do
    case $1 in
      --dry-run) DRY_RUN=1; shift; continue ;;
      -h | --help) sed -n '2,/^set /s/^#\( \|$\)//p' "$0"; exit 0 ;;
    esac
    name=${1#--} name=${name//-/_} name=${name^^}
    [[ $1 == --* && " $options " == *" $name "* ]] || fail "unknown argument $1; --help lists them"
    [ $# -gt 1 ] || fail "$1 needs a value"
    printf -v "$name" %s "$2"; shift 2
  done
}
need() { # names of variables without a default
  local name flag
  for name; do
    flag=${name,,}
    [ -n "${!name}" ] || fail "--${flag//_/-} is not given, nor SPECDEC_$name in the environment"
  done
}

run() { # a command: shows it, and runs it unless this is a dry run
  printf '+' >&2; printf ' %q' "$@" >&2; echo >&2
  [ -n "$DRY_RUN" ] || "$@"
}

exists() { # a path, of a bucket or here; in a dry run nothing is there yet
  [ -z "$DRY_RUN" ] || return 1
  case $1 in gs://*) gcloud storage ls "$1" >/dev/null 2>&1 ;; *) [ -e "$1" ] ;; esac
}

mark() { # a path: remembers that a step is done
  case $1 in
    gs://*) run gcloud storage cp /dev/null "$1" ;;
    *) run mkdir -p "$(dirname "$1")"; run touch "$1" ;;
  esac
}

chips_of() { # an accelerator type: a number behind v4 or v5p counts cores, two of a chip
  case $1 in v[234]-* | v5p-*) echo $((${1##*-} / 2)) ;; *) echo "${1##*-}" ;; esac
}

cost() { # at the end, however it comes
  [ -z "$CHIPS" ] || [ -n "$DRY_RUN" ] ||
    awk -v c="$CHIPS" -v s="$SECONDS" 'BEGIN {
      printf "%d chips for %d s: %.2f chip-hours\n", c, s, c * s / 3600 }' >&2
}
trap cost EXIT
