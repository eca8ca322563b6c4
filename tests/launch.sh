# Sourced by the tests that compile models and launch what comes out. They run in a folder of their own,
# $work, which is removed at the end unless KEEP is set. Needs: $pdc, the compiler.
set -u
case $pdc in /*) ;; *) pdc=$PWD/$pdc ;; esac
here=$(cd "$(dirname "$0")" && pwd)
top=${here%/tests/*}
. "$top/tests/sample.sh"
work=$(mktemp -d)
# Open MPI makes and removes a folder that all launches share otherwise: two tests at once got into each other's way.
export OMPI_MCA_orte_tmpdir_base="$work"
trap '[ -n "${KEEP:-}" ] && echo "kept: $work" || rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work" || exit 1
failed=0
# Where compilers look for a linker first: lld, if the build found it.
export COMPILER_PATH="${pdc%/*}/tests/linker"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
ranks_launch=${pdc%/*}/tests/ranks/ranks_launch
. "$top/tests/launcher.sh"

# The most bytes of MPI, oneDNN and OpenMP beside a rank's arena. `--memory` counts those of oneDNN 2 (compiler/device/processors.c).
libraries() { if "$pdc" --version | grep -q '^oneDNN: 2'; then echo $((8 << 20)); else echo $((14 << 20)); fi; }

complain() {
  echo "FAILED: $*" >&2
  failed=1
}

# build DIR OPTIONS... MODEL: compiles; what was said is shown when it fails. $target: c, or cuda for programs that run
# on tests/cuda/host, of $precision. For C, whose precision is $of_c, flags that come after pdc's own, with commas between: $level, -O0 where a
# test is about what programs do and not about how they are compiled (bits do not depend on it, as tests/bits shows,
# and clang takes an eighth of the time), and $more_flags. Of either in bf16: $residual, which is --residual's.
build() {
  if [ "${target:-c}" = cuda ]; then
    "$pdc" --target cuda --precision "${precision:-f32}" ${residual:+--residual "$residual"} -S -o "$@" >build.log 2>&1 &&
      sh "$(dirname "$pdc")/tests/cuda/host/compile" "$1" >>build.log 2>&1 && return
  else
    set -- --precision "${of_c:-f32}" ${residual:+--residual "$residual"} -o "$@"
    cc_flags=${level:-}${level:+${more_flags:+,}}${more_flags:-}
    [ -z "$cc_flags" ] || set -- "$@" --cc "$top/tests/cc-with $cc_flags clang"
    "$pdc" "$@" >build.log 2>&1 && return
  fi
  head -n 30 build.log >&2
  complain "pdc -o $*"
  return 1
}

# launch N DIR OPTIONS...: trains with N ranks. Two launches at once that share Open MPI's folder get into each other's way, too.
launch() {
  ranks=$1 program=$2/train
  shift 2
  OMPI_MCA_orte_tmpdir_base=$(mktemp -d "$work/.ompi.XXXXXX") $mpirun -n "$ranks" "$program" --quiet --peak 1e9 --timeout 300 "$@"
}

# The figures of a log that must not depend on the plan: losses, metrics and norms, also of validations.
figures() {
  sed -n 's/^{\("step":[0-9]*,"\(validation_\)*loss":.*\),"\(lr\|samples\)":.*/\1/p' "$1"
}
