# Sourced by the tests of this folder, after $pdc (the build folder's) and $cmake are set: $place is where pdc is
# installed, a folder with a space in its name to which it was moved.
. "$(dirname "$0")/../launch.sh"
build=$(dirname "$pdc")
place="$work/a place" installed="$work/a place/bin/pdc"
# The runtime that an installed pdc compiles is kept between these tests.
XDG_CACHE_HOME=$build/install-cache
export XDG_CACHE_HOME

install_moved() {
  "$cmake" --install "$build" --prefix "$work/first" --strip >install.log 2>&1 && mv first "$place" && return
  cat install.log >&2
  complain "cmake --install"
  exit 1
}

seq -f 'line %g of a text that a small model reads' 400 >text.txt

# trained PDC DIR [OPTIONS...]: builds the small model and trains it; its weights are DIR.safetensors.
trained() {
  compiler=$1 to=$2
  shift 2
  "$compiler" --stages 2 -o "$to" "$@" "$top/models/mlp.pdm" >build.log 2>&1 ||
    { complain "$compiler does not build: $(cat build.log)"; return 1; }
  ${launcher:-$mpirun} -n 2 "$to/train" --quiet --peak 1e9 --data text.txt --steps 6 --save "$to.safetensors" >train.log 2>&1 ||
    { complain "$to does not train: $(cat train.log)"; return 1; }
}
