# shellcheck shell=bash
# What up.sh and down.sh agree on: one state folder for each checkout, owned by the user who runs it.
# Settings are environment variables: KVEXP_SLURM_STATE, _CPUS, _GPUS, _MEM_MB, _ARRAY (MaxArraySize).
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
CHECKSUM=$(cksum <<<"$CHECKOUT" | cut -d ' ' -f 1)
# Not below the checkout: paths of sockets have at most 107 characters.
STATE=${KVEXP_SLURM_STATE:-/tmp/kvexp-slurm-$(id -u)-$CHECKSUM}
DAEMONS=(munged mariadbd slurmdbd slurmctld slurmd) # in the order of their start

say() { echo "dev-cluster: $*" >&2; }
fail() {
  say "$1"
  exit "${2:-1}"
}

# The process of a daemon, while the one that up.sh started still runs that program.
running() {
  local pid
  pid=$(cat "$STATE/$1.pid" 2>/dev/null) && [[ -n $pid ]] &&
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == "$1" ]] && [[ $(awk '/^State/ { print $2 }' "/proc/$pid/status") != Z ]] &&
    echo "$pid"
}

# Runs a command until it succeeds, for at most some seconds.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}
