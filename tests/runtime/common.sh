# Shared by scripts of this folder and of tests/cuda/transfers: paths of programs, launches, and fresh data.
programs=$1 open_mpi=$2 ranks_launch=${1%/runtime}/ranks/ranks_launch
top=$(cd "$(dirname "$0")" && pwd)
top=${top%/tests/*}
. "$top/tests/launcher.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
work=$(mktemp -d) || exit 1
# Open MPI makes and removes a folder that all launches share otherwise: two tests at once got into each other's way.
export OMPI_MCA_orte_tmpdir_base="$work"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
failed=0
complain() { echo "FAIL: $*"; failed=1; }

# npy FILE SAMPLES BAD: 8 numbers a sample; number BAD is NaN.
python3 - <<'P' || exit 1
import math, struct

def npy(path, rows, f):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 8), }" % rows
    data = [f(i) for i in range(8 * rows)]
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00\x76\x00" + head.ljust(117).encode() + b"\n" + struct.pack("<%df" % len(data), *data))

x = lambda i: math.sin(i * i)
npy("x.npy", 37, x)
npy("t.npy", 37, lambda i: 1.7 * x(i) + 0.3)
npy("vx.npy", 13, lambda i: x(i + 1000))
npy("vt.npy", 13, lambda i: 1.7 * x(i + 1000) + 0.3)
npy("nan.npy", 37, lambda i: math.nan if i == 100 else x(i))
npy("few.npy", 36, x)
P

one() { d=$1; shift; timeout 600 $mpirun -n 1 "$programs/chain_1_0_$d" "$@"; }
two() { d=$1; shift; timeout 600 $mpirun -n 1 "$programs/chain_2_0_$d" "$@" : -n 1 "$programs/chain_2_1_$d" "$@"; }
# plan NAME OPTIONS...: a plan of replicas-of-stages_delay_microbatches, a program a stage, of $prefix.
prefix=$programs/replicas_
plan() {
  name=$1 command= stage=0
  shift
  for w in $(echo "${name%%_*}" | tr - ' '); do
    command="$command${command:+ : }-n $w $prefix${name}_$stage $*"
    stage=$((stage + 1))
  done
  timeout 600 $mpirun $command
}
reference() { name=$1; shift; timeout 600 $mpirun -n 1 "$programs/replicas_${name}_reference" "$@"; }
# The figures of a log that no launch may change.
figures() { sed -n 's/,"samples_per_s.*//; s/,"ms".*//; /"step"/p' "$1"; }

# refused NAME MESSAGE COMMAND...: the command fails, and says just this.
refused() {
  mistake=$1 message=$2
  shift 2
  "$@" >out 2>err
  status=$?
  [ $status != 0 ] && [ $status != 124 ] || complain "$mistake: exit status $status"
  [ "$(grep -c '^pd: rank' err)" = 1 ] && grep -q "^pd: rank $message" err ||
    complain "$mistake: expected 'pd: rank $message' alone, not: $(cat err)"
  grep -q MPI_ABORT err && complain "$mistake: the launcher speaks of itself: $(cat err)"
}
# outlives PROGRAM...: one of this folder's ranks still runs one of these.
outlives() {
  for p in $(pidof "$@"); do
    [ "$(readlink /proc/$p/cwd)" = "$work" ] && return
  done
  return 1
}

# stopped SIGNAL PROGRAM LAUNCH...: sends one rank that runs PROGRAM the signal, once endless.log has an update.
stopped() {
  signal=$1 program=$2
  shift 2
  rm -f endless.log
  "$@" &
  launch=$!
  while ! grep -qs '"step"' endless.log && kill -0 $launch 2>/dev/null; do sleep 0.1; done
  for p in $(pidof "$program"); do
    [ "$(readlink /proc/$p/cwd)" = "$work" ] && kill -s "$signal" "$p" && break
  done
  wait $launch
}
