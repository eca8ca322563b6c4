# Sourced by tests that need Slurm, after launch.sh: a cluster of this machine alone, with daemons, keys, ports and state of
# its own in $work/slurm. Ends the test with 77 where Slurm is not installed or cannot be started. `stop_cluster` ends it.
for program in slurmctld slurmd munged srun sbatch scontrol; do
  command -v $program >/dev/null || PATH=$PATH:/usr/sbin
  command -v $program >/dev/null || { echo "no $program here: apt install slurm-wlm munge"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "only root can start Slurm's daemons"; exit 77; }

cluster=$work/slurm
mkdir -p "$cluster/spool" "$cluster/state"
chmod 755 "$work" "$cluster"
node=$(hostname -s)
first_port=$((20000 + $$ % 20000))

dd if=/dev/urandom of="$cluster/munge.key" bs=1024 count=1 status=none
chmod 600 "$cluster/munge.key"
cat >"$cluster/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmctldPort=$first_port
SlurmdPort=$((first_port + 1))
AuthType=auth/munge
AuthInfo=socket=$cluster/munge.socket
CredType=cred/munge
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool
SlurmctldPidFile=$cluster/slurmctld.pid
SlurmdPidFile=$cluster/slurmd.pid
SlurmctldLogFile=$cluster/slurmctld.log
SlurmdLogFile=$cluster/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
SlurmdParameters=config_overrides
MpiDefault=pmix
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=30
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
NodeName=$node NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=low Nodes=$node Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=30 OverSubscribe=NO
PartitionName=high Nodes=$node MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
END
cat >"$cluster/cgroup.conf" <<END
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
END
SLURM_CONF=$cluster/slurm.conf
export SLURM_CONF

stop_cluster() {
  scancel --user=root 2>/dev/null
  for daemon in slurmd slurmctld munged; do
    [ ! -s "$cluster/$daemon.pid" ] || kill "$(cat "$cluster/$daemon.pid")" 2>/dev/null
  done
}
trap 'stop_cluster; [ -n "${KEEP:-}" ] && echo "kept: $work" || { sleep 1; rm -rf "$work"; }' EXIT

refuse() {
  echo "Slurm does not start here: $*"
  tail -n 5 "$cluster"/*.log 2>/dev/null
  exit 77
}
munged --force --key-file="$cluster/munge.key" --socket="$cluster/munge.socket" --pid-file="$cluster/munged.pid" \
  --log-file="$cluster/munged.log" --seed-file="$cluster/munge.seed" --num-threads=2 >"$cluster/said" 2>&1 ||
  refuse "$(cat "$cluster/said")"
slurmctld -c >"$cluster/said" 2>&1 || refuse "$(cat "$cluster/said")"
slurmd -N "$node" >"$cluster/said" 2>&1 || refuse "$(cat "$cluster/said")"
i=0
until [ "$(sinfo -h -p low -o %t 2>/dev/null)" = idle ]; do
  i=$((i + 1))
  [ $i -lt 100 ] || refuse "the node is not idle: $(sinfo 2>&1)"
  sleep 0.2
done
