# Stage programs by every compiler that is here: the bits of pdc's own.  compilers.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
seq -f 'line %g of a text that a small model reads' 400 >text.txt
# made NAME [OPTIONS...]: NAME.safetensors, by a program of one rank.
made() {
  name=$1
  shift
  "$pdc" --stages 1 --threads 1 "$@" -o "$name" "$top/models/mlp.pdm" >build.log 2>&1 &&
    $mpirun -n 1 "$name/train" --quiet --peak 1e9 --data text.txt --steps 3 --save "$name.safetensors" >said 2>&1 ||
    complain "$name: $(cat build.log said)"
}
made own
for compiler in gcc gcc-11 gcc-12 gcc-13 gcc-14 clang-14 clang-15 clang-16 clang-17 clang-18 clang-19 clang-20; do
  command -v "$compiler" >/dev/null || continue
  echo "$compiler"
  made "$compiler" --cc "$compiler" && cmp own.safetensors "$compiler.safetensors" || complain "$compiler: other weights"
done
exit $failed
