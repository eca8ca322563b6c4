# A heterogeneous step, a stage a component on a node of its own, has the bits of mpirun.  heterogeneous.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
nodes="one two" processors=1
. "$(dirname "$0")/cluster.sh"
level=-O0
seq -f 'line %g of a text that a small model reads' 2000 >text.txt
build two --stages 2 "$top/models/mlp.pdm" || exit 1
options="--quiet --peak 1e9 --timeout 60 --data text.txt --seed 3 --steps 300 --save"
export OMPI_MCA_mpi_yield_when_idle=1 # ranks share processors
$mpirun -n 2 two/train $options usual.safetensors || complain "mpirun"

# docs/guide/clusters.md says what Slurm 22.05's srun may do when all ranks have ended: wait for itself. Then it is ended here.
export PD_PLAN=two/plan.json
salloc -Q -N 2 sh -c "srun -n 1 two/stage0 $options step.safetensors : -n 1 two/stage1 $options step.safetensors; echo \$? >status" &
left=600
ranks() { pgrep -f "^two/stage[01] $options" >/dev/null; }
until [ -s status ] || { [ -f step.safetensors ] && ! ranks; } || [ $left = 0 ]; do
  left=$((left - 1))
  sleep 0.2
done
sleep 2
[ -s status ] || pkill -KILL -f "^srun -n 1 two/stage0 $options"
wait
case $(cat status) in 0 | 137) ;; *) complain "heterogeneous step: exit status $(cat status)" ;; esac
cmp usual.safetensors step.safetensors || complain "heterogeneous step: other weights"
exit $failed
