# srun starts what mpirun starts, with the same bits; a job that is preempted goes on when it is requeued.  launches.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
nodes=one processors=4
. "$(dirname "$0")/cluster.sh"
level=-O0
seq -f 'line %g of a text that a small model reads' 2000 >text.txt
build two --stages 2 "$top/models/mlp.pdm" || exit 1
options="--quiet --peak 1e9 --timeout 60 --data text.txt --seed 3"
export OMPI_MCA_mpi_yield_when_idle=1 # ranks share processors

$mpirun -n 2 two/train $options --steps 300 --save usual.safetensors || complain "mpirun"
timeout 300 srun -n 2 two/train $options --steps 300 --save srun.safetensors || complain "srun"
cmp usual.safetensors srun.safetensors || complain "srun: other weights"
timeout 60 srun -n 3 --overcommit two/train $options --steps 1 >said 2>&1 && complain "three ranks for two"
grep -q "this plan has 2 stage(s) on 2 rank(s), but the launch has 3" said || complain "not how many ranks: $(cat said)"

# Several models in one launch.
build both --sharp -n 2 "$top/models/mlp.pdm" "$top/models/mlp.pdm" -D hidden=96 || exit 1
$mpirun -n 2 both/train $options --steps 60 --slice 0 --save 'usual-{model}' || complain "mpirun, several models"
timeout 300 srun -n 2 both/train $options --steps 60 --slice 0 --save 'srun-{model}' || complain "srun, several models"
for model in both/mlp*; do
  cmp "usual-${model#both/}" "srun-${model#both/}" || complain "srun: other weights of ${model#both/}"
done

# A step whose ranks are different programs.
printf '0 two/stage0 %s --steps 300 --save steps.safetensors\n1 two/stage1 %s --steps 300 --save steps.safetensors\n' \
  "$options" "$options" >programs
PD_PLAN=two/plan.json timeout 300 srun -n 2 --multi-prog programs || complain "srun --multi-prog"
cmp usual.safetensors steps.safetensors || complain "srun --multi-prog: other weights"

# docs/guide/clusters.md's job, preempted in the middle: it ends with a checkpoint, and goes on when the other job is done.
cat >job.sh <<END
#!/bin/sh
#SBATCH --partition=low --ntasks=2 --requeue --open-mode=append --output=job.out
srun two/train $options --steps 6000 --checkpoint kept --checkpoint-every 1000 --keep 2 --log job.jsonl --resume-or-start
status=\$?
[ \$status != 75 ] || scontrol requeue "\$SLURM_JOB_ID"
exit \$status
END
job=$(sbatch --parsable job.sh)
wait_for() { # SECONDS COMMAND...
  left=$(($1 * 5))
  shift
  until "$@"; do
    left=$((left - 1))
    [ $left -gt 0 ] || { complain "in vain: $* $(squeue; cat job.out; tail -n 3 job.jsonl)"; return 1; }
    sleep 0.2
  done
}
reached() { [ -f job.jsonl ] && [ "$(grep -c '"loss"' job.jsonl)" -ge "$1" ]; }
is_state() { [ "$(squeue -h -j "$job" -o %T 2>/dev/null)" = "$1" ]; }
wait_for 240 reached 1500
sbatch --parsable --partition=high --ntasks=4 --output=other.out --wrap 'until [ -e other_may_end ]; do sleep 0.2; done' >/dev/null
wait_for 240 is_state PENDING
before=$(grep -c '"loss"' job.jsonl)
grep -q 'SIGTERM: stopped after update' job.out || complain "the training does not say why it ends: $(cat job.out)"
# Slurm lets two minutes pass unless it is told. Its credentials count seconds: a job that starts again in the second in which
# it ended has one that was revoked (slurmctld.log: "Killing non-startable batch", "Job credential revoked"), and fails.
sleep 2
touch other_may_end
goes_on() {
  scontrol update JobId="$job" StartTime=now 2>/dev/null
  reached $((before + 200))
}
wait_for 240 goes_on
wait_for 600 sh -c "[ -z \"\$(squeue -h -j $job 2>/dev/null)\" ]"
[ "$(scontrol show job "$job" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p')" -ge 1 ] || complain "the job was not requeued"
"$pdc" checkpoint kept >said && grep -q '^ *6000 .*sound' said || complain "not to the end: $(cat said)"
steps=$(sed -n 's/.*"step":\([0-9]*\).*"loss".*/\1/p' job.jsonl | sort -n | uniq | wc -l)
[ "$steps" = 6000 ] || complain "$steps updates are in the log"

$mpirun -n 2 two/train $options --steps 6000 --checkpoint whole || complain "the same without Slurm"
for shard in whole/step-*6000/*.safetensors; do
  cmp "$shard" "kept/${shard#whole/}" || complain "$shard: other weights"
done
exit $failed
