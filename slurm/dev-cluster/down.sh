#!/usr/bin/env bash
# Stops what up.sh started, and nothing else. The queue and the accounting database stay for the next start;
# `down.sh --purge` removes them.
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

no_jobs() { [[ -z $(squeue -h -o %i) ]]; }
gone() { [[ -z $(running "$1") ]]; }

cancel_jobs() {
  running slurmctld >/dev/null && running munged >/dev/null && ! no_jobs || return 0
  say "cancelling jobs"
  timeout 20 scancel -u "$(id -un)" || true
  wait_for 10 no_jobs || say "some jobs do not end"
}

# Steps that outlive slurmd by design; their sockets in the spool folder name them.
end_steps() {
  local pid job
  for pid in $(pgrep -u "$(id -u)" -x slurmstepd || true); do
    job=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | sed -nE 's/^slurmstepd: \[([0-9]+)\..*/\1/p')
    if [[ -n $job ]] && compgen -G "$STATE/node/*_$job.*" >/dev/null; then kill -KILL "$pid" || true; fi
  done
}

stop() {
  local pid
  if pid=$(running "$1"); then
    kill -TERM "$pid"
    wait_for 15 gone "$1" || kill -KILL "$pid" || true
  fi
  rm -f "$STATE/$1.pid"
}

[[ -d $STATE ]] || exit 0
export SLURM_CONF=$STATE/slurm.conf
cancel_jobs
for ((i = ${#DAEMONS[@]} - 1; i >= 0; i--)); do
  stop "${DAEMONS[i]}"
  [[ ${DAEMONS[i]} != slurmd ]] || end_steps
done
[[ ${1:-} != --purge ]] || rm -rf "$STATE"
say "stopped"
