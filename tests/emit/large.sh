#!/bin/sh
# usage: large.sh CASE PDC SOURCE_DIR COMPILER BUILD_DIR [HOST_COMPILER]
# Programs whose largest buffer has more than 2^32 elements compile, and CUDA's kernels have no 32-bit index in loops over them.
. "${0%/*}/common.sh"
. "$source/tests/emit/compiler.sh"

# Prints lines with an int in kernels that have a buffer of more than 2^31 elements. An int that counts to a constant is left out.
narrow_lines() {
  awk '/^static __global__/ { lines = ""; wide = 0; in_kernel = 1 }
       in_kernel {
         for (rest = $0; match(rest, /, [0-9]+[)] /); rest = substr(rest, RSTART + RLENGTH))
           if (substr(rest, RSTART + 2, RLENGTH - 4) + 0 > 2147483647) wide = 1
         if (/const int |[(]int / && !/[(]int [vm] = 0;/) lines = lines $0 "\n"
       }
       /^}/ { if (in_kernel && wide) printf "%s", lines; in_kernel = 0 }' "$1"
}

# check MODEL OPTION...: the stage programs and the timing program.
check() {
  model=$1
  shift
  expect 0 "$pdc" -S --verify-each --target $target --memory 1000000TB -o out.build "$@" "$model"
  expect 0 "$pdc" profile -S --target $target "$@" -o timing.$suffix "$model"
  for file in out.build/stage*.$suffix timing.$suffix; do
    compiler $file >said 2>&1 || { head -n 20 said >&2; fail "$file of $model $* does not compile"; }
    [ $target = c ] || narrow_lines $file >narrow
    [ $target = c ] || [ ! -s narrow ] || { head -n 20 narrow >&2; fail "$file of $model $*: 32-bit indices"; }
  done
  # Sizes of arrays in C, of buffers in CUDA.
  case $target in
  c) grep -ohE '\[(MICROBATCH|[0-9]+)[^]]* \* [0-9LA-Z* ]*\]' out.build/stage*.c | tr -d '[]' ;;
  *) grep -ohE 'PD_(READS|WRITES)[(][a-z0-9_]+, [0-9]+' out.build/stage*.cu | sed 's/.*, //' ;;
  esac | sed "s/MICROBATCH/$batch/g; s/LL//g; s/ //g" |
    awk -F '*' '{ n = 1; for (i = 1; i <= NF; i++) n *= $i; if (n > 4294967296) large = 1 } END { exit !large }' &&
    large=$((large + 1))
}

large=0 # programs that have such a buffer
batch=134217728
samples="--stages 1 -D batch=$batch --microbatch $batch"
models="$source/tests/golden/*.pdm"
[ $case != nvcc ] || models="$source/tests/golden/shapes.pdm $source/tests/golden/layers.pdm"
for model in $models; do
  # Masks of 150 x 150 elements a sample reach CUDA's largest number of blocks with fewer samples. oneDNN 2.6 divides by zero
  # for a product of 2^33 rows, which words.pdm would have.
  case $model in
  */windows.pdm | */words.pdm) batch=16777216 && check "$model" --stages 1 -D batch=$batch --microbatch $batch && batch=134217728 ;;
  *) check "$model" $samples ;;
  esac
done
[ $target = c ] || check "$source/tests/golden/blocks.pdm" $samples --precision bf16
[ "$large" -gt 1 ] || fail "only $large programs have a buffer of more than 2^32 elements"

large=0
batch=64
weights="-D n_embd=65536 -D n_head=512 -D vocab_size=131072 -D n_ctx=2048 -D n_layer=2 -D p_drop=0.1 -D batch=64 --microbatch 64"
check "$source/models/gpt_mini.pdm" --stages 1 $weights
[ $large = 1 ] || fail "no parameter or value has more than 2^32 elements"
[ $case != nvcc ] || exit 0
check "$source/models/gpt_mini.pdm" --stages 2 --replicas 2,1 --schedule flush $weights -D batch=128
check "$source/models/gpt_mini.pdm" --tensor 2 -n 2 --schedule flush $weights
batch=262144
check "$source/models/resnet50.pdm" --stages 1 -D batch=$batch --microbatch $batch
[ $large = 4 ] || fail "only $large of 4 programs have a buffer of more than 2^32 elements"
