#!/bin/sh
# usage: words.sh CASE PDC SOURCE_DIR COMPILER BUILD_DIR [HOST_COMPILER]
# Compiles models whose layers and values have the names that could collide in an emitted program: declarations, macros and
# keywords of the compiler and its headers, and the words of emitted programs.
# CASE: c, clang_cuda (against tests/cuda/host's headers) or nvcc (with HOST_COMPILER).
. "${0%/*}/common.sh"
. "$source/tests/emit/compiler.sh"

# Reserved words of pdm.
pdm='use|layer|model|train|cluster|param|buffer|input|target|loss|metric|output|return|if|else|for|in|and|or|not|true|false'
# A declaration of one of these hides errors of the next line from `known`.
keywords='auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof'
# Keywords of C23 and C++, and names that collided once.
others='alignas alignof and_eq bitand bitor bool catch char8_t char16_t char32_t class compl concept const_cast consteval
constexpr constinit co_await co_return co_yield decltype delete dynamic_cast explicit export final friend import module mutable
namespace new noexcept not_eq nullptr operator or_eq override private protected public reinterpret_cast requires static_assert
static_cast template this thread_local throw try typeid typename typeof_unqual using virtual wchar_t xor xor_eq std all any
ballot float2 uint lerp exit rand round pow floor ceil fabs fma tan cbrt nan memcpy strlen'

words() { grep -oE '\b[A-Za-z][A-Za-z0-9_]*\b' | grep '[a-z]' | LC_ALL=C sort -u; }

# emit NAME OPTION...: writes NAME/stage0.SUFFIX and the timing program NAME.SUFFIX.
emit() {
  name=$1
  shift
  expect 0 "$pdc" -S --target $target -o "$name" "$@"
  expect 0 "$pdc" profile -S --target $target "$@" -o "$name.$suffix"
}

# known SOURCE: the names that its headers or the compiler declare. A second declaration of each is an error. And all macros.
known() {
  grep '^#include\|^#define _GNU_SOURCE' "$1" >headers.$suffix
  echo $keywords | words >keywords
  {
    compiler headers.$suffix -E | grep -v '^#'
    for library in libc.so.6 libm.so.6; do
      nm -D --defined-only "$("${host:-$cc}" -print-file-name=$library)" | sed 's/@.*//; s/.* //'
    done
  } | words | LC_ALL=C comm -23 - keywords >candidates
  { cat headers.$suffix; echo '#line 1 "probe"'; sed 's/.*/static struct probe *&;/' candidates; } >probe.$suffix
  all='-ferror-limit=0 -Wno-unused-variable'
  [ $case != nvcc ] || all='-Xcudafe --error_limit=1000000'
  [ $case != c ] || "$cc" --version | grep -q clang || all='-fmax-errors=0 -Wno-unused-variable'
  compiler probe.$suffix $all 2>errors
  sed -n 's/^probe[:(]\([0-9]*\)[:)].*error.*/\1/p' errors | awk 'NR == FNR { known[$1]; next } FNR in known' - candidates
  compiler headers.$suffix -E $([ $case != nvcc ] || echo -Xcompiler) -dM | sed -n 's/^#define //p' | grep -oE '^[A-Za-z]\w*'
}

# model NAMES: a chain with a layer and a value of each name. Widths differ, so the program has a loop and an object for each.
model() {
  awk 'BEGIN { print "use nn;\nmodel names() {\n  input x[4];\n  target y[1];\n  v = x;" }
       { printf "  %s = relu(%s: linear(v, %d, bias = false));\n  v = %s;\n", $1, $1, NR + 4, $1 }
       END { print "  loss square(sum(v) - y);\n}\ntrain names { batch = 4; optimizer = sgd(lr = 0.1); pipeline = sequential; }" }' "$1"
}

emit own --stages 1 "$source/models/mlp.pdm"
known own/stage0.$suffix >names
known own.$suffix >>names
n=$(wc -l <names)
[ "$n" -gt 1000 ] || fail "only $n names are declared"
cat own/stage0.$suffix own.$suffix | words | grep -vxE "$pdm" >own_words
echo $keywords $others | words >>names
words <names | grep -vxE "$pdm" | LC_ALL=C comm -23 - own_words | split -l 150 - part.
split -l 300 own_words words.
for part in words.??; do
  model $part >$part.pdm
  emit $part.out -n 1 --memory 100GB $part.pdm
  compiler $part.out/stage0.$suffix && compiler $part.out.$suffix || fail "a layer named after a word of emitted programs breaks the program"
done

# One file with the loops and objects of all programs compiles faster than the programs.
for part in part.??; do
  model $part >$part.pdm
  expect 0 "$pdc" -S --target $target -n 1 --memory 100GB -o $part.out $part.pdm
done
{
  cat headers.$suffix
  cat part.*.out/stage0.$suffix | sed -n '/^static struct pd_matmul \*/p; /^.\* ---- fused loops/,/^.\* Before the first/p' |
    awk '/^static struct/ && !seen[$4]++
         /^static __global__/ { head = $0; getline }
         /^static void|^[a-z].*PD_(READS|WRITES)/ { name = $0; sub(/^static void /, "", name); sub(/[(].*/, "", name)
           new = !seen[name]++; if (new && head) print head }
         new
         /^}/ { new = 0 }'
} >all.$suffix
[ "$(grep -c '^static struct' all.$suffix)" -gt "$n" ] || fail "all.$suffix has fewer objects than $n names"
compiler all.$suffix $([ $case = nvcc ] && echo -w || echo -Wno-unused) || fail "a layer named after a declaration breaks the program"
