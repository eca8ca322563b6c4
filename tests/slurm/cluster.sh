# Sourced by tests that need Slurm, after launch.sh: a cluster of this machine alone, with daemons, keys, ports and state of
# its own in $work/slurm. $nodes names its nodes, which have $processors each; several are all this machine, each with a
# mount namespace: what is a node's own has one path on all. Ends the test with 77 where Slurm is not installed or cannot
# be started. `stop_cluster` ends it.
for program in slurmctld slurmd munged srun sbatch scontrol; do
  command -v $program >/dev/null || PATH=$PATH:/usr/sbin
  command -v $program >/dev/null || { echo "no $program here: apt install slurm-wlm munge"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "only root can start Slurm's daemons"; exit 77; }

unshare -m true 2>/dev/null || { echo "no mount namespaces here"; exit 77; }

cluster=$work/slurm
mkdir -p "$cluster/spool" "$cluster/state"
chmod 755 "$work" "$cluster"
host=$(hostname -s)
first_port=$((20000 + $$ % 20000))

dd if=/dev/urandom of="$cluster/munge.key" bs=1024 count=1 status=none
chmod 600 "$cluster/munge.key"
cat >"$cluster/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=$first_port
AuthType=auth/munge
AuthInfo=socket=$cluster/munge.socket
CredType=cred/munge
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool
SlurmctldPidFile=$cluster/slurmctld.pid
SlurmdPidFile=$cluster/slurmd-%n.pid
SlurmctldLogFile=$cluster/slurmctld.log
SlurmdLogFile=$cluster/slurmd-%n.log
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
$(port=$first_port
for name in $nodes; do
  port=$((port + 1))
  echo "NodeName=$name NodeHostname=$host NodeAddr=127.0.0.1 Port=$port CPUs=$processors State=UNKNOWN"
done)
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=30 OverSubscribe=NO
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
END
cat >"$cluster/cgroup.conf" <<END
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
END
echo "PMIxCliTmpDirBase=$cluster/spool" >"$cluster/mpi.conf"
SLURM_CONF=$cluster/slurm.conf
export SLURM_CONF

stop_cluster() {
  scancel --user=root 2>/dev/null
  for file in "$cluster"/slurmd-*.pid "$cluster/slurmctld.pid" "$cluster/munged.pid"; do
    [ ! -s "$file" ] || kill "$(cat "$file")" 2>/dev/null
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
for name in $nodes; do
  mkdir -p "$cluster/spool-$name"
  unshare -m --propagation slave sh -c "mount --bind $cluster/spool-$name $cluster/spool && exec slurmd -N $name" \
    >"$cluster/said" 2>&1 || refuse "$(cat "$cluster/said")"
done
i=0
until [ "$(sinfo -h -p low -o %t 2>/dev/null)" = idle ]; do
  i=$((i + 1))
  [ $i -lt 100 ] || refuse "no idle nodes: $(sinfo 2>&1)"
  sleep 0.2
done
