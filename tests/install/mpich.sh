# MPICH beside Open MPI: the same programs, the same bits.  mpich.sh PDC CMAKE
pdc=$1 cmake=$2
. "$(dirname "$0")/common.sh"
command -v mpicc.mpich >/dev/null && command -v mpirun.mpich >/dev/null || { echo "no MPICH here"; exit 77; }
install_moved

trained "$pdc" own
launcher="timeout -k 5 900 mpirun.mpich"
# The runtime is compiled for MPICH without optimisation, which changes no bit.
cc="$top/tests/cc-with -O0 clang"
trained "$installed" other --mpicc mpicc.mpich --cc "$cc"
cmp own/stage1.c other/stage1.c || complain "other programs"
cmp own.safetensors other.safetensors || complain "other weights"
"$installed" doctor --mpicc mpicc.mpich >said || complain "doctor: $(cat said)"
grep -q '^ok *MPI *mpicc.mpich' said || complain "doctor: $(cat said)"

# Several models in one launch, each a process of its own that MPICH's launcher knows nothing of.
models="$top/models/mlp.pdm $top/models/mlp.pdm -D hidden=96"
"$installed" --sharp -n 2 --mpicc mpicc.mpich --cc "$cc" -o both $models >build.log 2>&1 || complain "several models: $(cat build.log)"
grep -q 'compiling the runtime' build.log && complain "the runtime is compiled again"
for model in both/mlp*; do
  $launcher -n 1 "$model/train" --quiet --peak 1e9 --data text.txt --steps 9 --save "alone-${model#both/}" || complain "$model alone"
done
$launcher -n 2 both/train --quiet --peak 1e9 --data text.txt --steps 9 --slice 0 --save 'beside-{model}' >said 2>&1 ||
  complain "several models: $(cat said)"
for model in both/mlp*; do
  cmp "alone-${model#both/}" "beside-${model#both/}" || complain "${model#both/} beside another has other weights"
done

# Replicas, checkpoints, and a rank that is killed: the launch ends, and goes on afterwards.
"$installed" --stages 2 --replicas 2,1 --mpicc mpicc.mpich --cc "$cc" -o three "$top/models/mlp.pdm" >build.log 2>&1 ||
  complain "does not build: $(cat build.log)"
run() { $launcher -n 3 three/train --quiet --peak 1e9 --timeout 20 --data text.txt "$@" >train.log 2>&1; }
run --steps 30 --checkpoint whole --save whole.safetensors || complain "three ranks: $(cat train.log)"
run --steps 1000000 --checkpoint kept --checkpoint-every 10 &
launched=$!
until [ -e kept/step-20 ] || [ -n "$(find kept -name 'step-*20*' 2>/dev/null)" ] || ! kill -0 $launched 2>/dev/null; do
  sleep 0.1
done
for rank in $(pgrep -f "three/stage1 .*--checkpoint kept"); do
  [ "$(readlink "/proc/$rank/cwd")" != "$work" ] || kill -9 "$rank"
done
wait $launched && complain "a launch whose rank is killed ends well"
run --steps 30 --checkpoint whole --resume --save resumed.safetensors || complain "does not resume: $(cat train.log)"
cmp whole.safetensors resumed.safetensors || complain "a finished training changes when it is resumed"
$launcher -n 2 three/train --data text.txt --steps 1 >said 2>&1 && complain "two ranks for three"
grep -q "mpirun -n 3" said || complain "not how many ranks: $(cat said)"
exit $failed
