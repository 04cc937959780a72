#!/usr/bin/env bash
# Starts a one-node Slurm for development and CI, from Debian's packages, with accounting and pretended GPUs:
#
#   eval "$(slurm/dev-cluster/up.sh)"            # prints `export SLURM_CONF=...`; may be repeated
#   slurm/dev-cluster/up.sh --install            # as root: installs missing packages first
#
# Everything runs as the user who calls, with all files in one folder; nothing of the machine's own Slurm,
# munge or database is read or changed. Exit status 3: packages are missing.
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

PROGRAMS=(munged mariadbd mariadb-install-db slurmdbd slurmctld slurmd srun sacct)
PACKAGES=(munge slurmctld slurmd slurmdbd slurm-client mariadb-server-core mariadb-client-core)
CPUS=${KVEXP_SLURM_CPUS:-4} GPUS=${KVEXP_SLURM_GPUS:-2} MEM_MB=${KVEXP_SLURM_MEM_MB:-8000}
ARRAY=${KVEXP_SLURM_ARRAY:-1001}
USER_NAME=$(id -un)
HOST=$(uname -n)
HOST=${HOST%%.*}

missing() {
  local program
  for program in "${PROGRAMS[@]}"; do command -v "$program" >/dev/null || echo "$program"; done
}

install_packages() {
  [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || fail "--install needs root and apt-get" 3
  say "installing ${PACKAGES[*]}"
  local policy=/usr/sbin/policy-rc.d made='' log
  log=$(mktemp)
  # Packages would start their own daemons otherwise.
  if [[ ! -e $policy ]]; then
    made=1
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
  fi
  export DEBIAN_FRONTEND=noninteractive
  if ! { apt-get update && apt-get install -y --no-install-recommends "${PACKAGES[@]}"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    [[ -z $made ]] || rm -f $policy
    fail "apt-get failed" 3
  fi
  [[ -z $made ]] || rm -f $policy
  rm -f "$log"
}

# Four ports in a row that nobody listens on, tried from one that the checkout's path decides.
free_ports() {
  local first try i
  for try in {0..99}; do
    first=$((20000 + (CHECKSUM + try * 131) % 2500 * 4))
    for i in 0 1 2 3; do
      if (exec 3<>"/dev/tcp/127.0.0.1/$((first + i))") 2>/dev/null; then continue 2; fi
    done
    echo $first
    return
  done
  fail "no free ports"
}

write_configuration() {
  local port i gres=''
  [[ -s $STATE/port ]] || free_ports >"$STATE/port"
  # Numbers of jobs name files, so a new cluster goes on where no other one has been.
  [[ -s $STATE/first_job ]] || echo $(($(date +%s) % 60000000 + 1)) >"$STATE/first_job"
  port=$(<"$STATE/port")
  for ((i = 0; i < GPUS; i++)); do ln -sfn /dev/null "$STATE/dev/nvidia$i"; done
  ((GPUS == 0)) || gres="GresTypes=gpu,shard"
  cat >"$STATE/slurm.conf" <<CONF
ClusterName=dev
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$USER_NAME
SlurmdUser=$USER_NAME
AuthType=auth/munge
AuthInfo=socket=$STATE/munge.socket,cred_expire=12
StateSaveLocation=$STATE/controller
SlurmdSpoolDir=$STATE/node
SlurmctldPidFile=$STATE/slurmctld.own
SlurmdPidFile=$STATE/slurmd.own
SlurmctldLogFile=$STATE/log/slurmctld
SlurmdLogFile=$STATE/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 1))
AccountingStoragePass=$STATE/munge.socket
AccountingStorageTRES=gres/gpu,gres/shard
KillWait=2
MinJobAge=60
CompleteWait=0
ReturnToService=2
MaxArraySize=$ARRAY
MaxJobCount=20000
FirstJobId=$(<"$STATE/first_job")
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=$((MEM_MB / CPUS))
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
SlurmdParameters=config_overrides
$gres
NodeName=dev1 NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=$CPUS RealMemory=$MEM_MB${gres:+ Gres=gpu:h100:$GPUS,shard:$((4 * GPUS))}
PartitionName=main Nodes=dev1 Default=YES PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=dev1 PriorityTier=10 PreemptMode=OFF
CONF
  printf 'AutoDetect=off\n' >"$STATE/gres.conf"
  ((GPUS == 0)) || printf 'Name=gpu Type=h100 File=%s/dev/nvidia%d\n' $(for ((i = 0; i < GPUS; i++)); do echo "$STATE $i"; done) >>"$STATE/gres.conf"
  ((GPUS == 0)) || printf 'Name=shard Count=%d\n' $((4 * GPUS)) >>"$STATE/gres.conf"
  cat >"$STATE/slurmdbd.conf" <<CONF
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((port + 1))
SlurmUser=$USER_NAME
AuthType=auth/munge
AuthInfo=socket=$STATE/munge.socket
LogFile=$STATE/log/slurmdbd
PidFile=$STATE/slurmdbd.own
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((port + 3))
StorageUser=$USER_NAME
StoragePass=dev
StorageLoc=accounting
CONF
  chmod 600 "$STATE/slurmdbd.conf" # slurmdbd insists
}

# start DAEMON CHECK... -- COMMAND...: runs a daemon in a session of its own until CHECK succeeds.
start() {
  local name=$1 check=()
  shift
  while [[ $1 != -- ]]; do
    check+=("$1")
    shift
  done
  shift
  running "$name" >/dev/null && return
  setsid "$@" </dev/null >>"$STATE/log/$name.out" 2>&1 &
  echo $! >"$STATE/$name.pid"
  local end=$((SECONDS + 120))
  until "${check[@]}" >/dev/null 2>&1; do
    if ((SECONDS >= end)) || ! kill -0 "$(<"$STATE/$name.pid")" 2>/dev/null; then
      tail -q -n 5 "$STATE/log/$name.out" "$STATE/log/$name" 2>/dev/null >&2 || true
      fail "$name does not answer; its log is in $STATE/log"
    fi
    sleep 0.1
  done
}

start_munged() {
  [[ -s $STATE/munge.key ]] || mungekey -c -k "$STATE/munge.key"
  start munged munge_answers -- munged --foreground --force --key-file="$STATE/munge.key" \
    --socket="$STATE/munge.socket" --pid-file="$STATE/munged.own" --log-file="$STATE/log/munged" \
    --seed-file="$STATE/munge.seed"
}
munge_answers() { munge -n -S "$STATE/munge.socket" | unmunge -S "$STATE/munge.socket"; }

start_database() {
  local port
  port=$(($(<"$STATE/port") + 3))
  if [[ ! -d $STATE/database/mysql ]]; then
    rm -rf "$STATE/database"
    mariadb-install-db --no-defaults --user="$USER_NAME" --datadir="$STATE/database" --skip-test-db \
      --auth-root-authentication-method=socket --skip-name-resolve >"$STATE/log/install-db" 2>&1 ||
      fail "mariadb-install-db failed; see $STATE/log/install-db"
  fi
  # It listens to this machine alone and holds nothing of worth.
  cat >"$STATE/database.sql" <<SQL
CREATE DATABASE IF NOT EXISTS accounting;
CREATE USER IF NOT EXISTS '$USER_NAME'@'127.0.0.1' IDENTIFIED BY 'dev';
GRANT ALL ON accounting.* TO '$USER_NAME'@'127.0.0.1';
SQL
  start mariadbd listens "$port" -- mariadbd --no-defaults --user="$USER_NAME" --datadir="$STATE/database" \
    --socket="$STATE/database.socket" --pid-file="$STATE/mariadbd.own" --bind-address=127.0.0.1 \
    --port="$port" --skip-name-resolve --init-file="$STATE/database.sql" --innodb-buffer-pool-size=64M \
    --innodb-log-file-size=32M --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=2 \
    --performance-schema=OFF
}
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1"); }

node_is_ready() { sinfo -h -N -o %t | grep -qxE 'idle|mix|alloc|comp'; }
cluster_is_known() { sacctmgr -n show cluster format=cluster | grep -qw dev || sacctmgr -i add cluster dev; }

main() {
  [[ ${1:-} != --install || -z $(missing) ]] || install_packages
  local lacking
  lacking=$(missing | xargs)
  [[ -z $lacking ]] ||
    fail "not installed: $lacking; on Debian or Ubuntu: apt-get install --no-install-recommends ${PACKAGES[*]}" 3
  ((${#STATE} < 90)) || fail "KVEXP_SLURM_STATE is too long for the path of a socket: $STATE"
  mkdir -p -m 700 "$STATE"
  [[ -O $STATE && ! -L $STATE ]] || fail "$STATE belongs to somebody else"
  mkdir -p "$STATE"/{log,dev,controller,node}
  cd "$STATE" # daemons outlive the folder of whoever calls
  export SLURM_CONF=$STATE/slurm.conf
  running slurmctld >/dev/null || write_configuration
  start_munged
  start_database
  start slurmdbd sacctmgr -n show cluster -- slurmdbd -D
  wait_for 60 cluster_is_known || fail "sacctmgr cannot add the cluster"
  start slurmctld scontrol ping -- slurmctld -D
  start slurmd true -- slurmd -D -N dev1
  if ! wait_for 10 node_is_ready; then
    scontrol update NodeName=dev1 State=RESUME 2>/dev/null || true # a crash left it down
    wait_for 120 node_is_ready || fail "the node is not ready; logs are in $STATE/log"
  fi
  wait_for 120 sacct -n -X || fail "sacct does not answer; logs are in $STATE/log"
  say "ready after $SECONDS s: $CPUS CPUs, $GPUS pretended GPUs, partitions main and urgent; logs in $STATE/log"
  echo "export SLURM_CONF=$SLURM_CONF"
}
main "$@"
