# An installed pdc does what the build folder's does, wherever it is moved to.  moved.sh PDC CMAKE
pdc=$1 cmake=$2
. "$(dirname "$0")/common.sh"
install_moved
rm -rf "$XDG_CACHE_HOME"

trained "$pdc" own
umask 002 # the cache is this user's alone all the same (cache.sh)
trained "$installed" moved
grep -q 'compiling the runtime' build.log || complain "the runtime is compiled without a word: $(cat build.log)"
cmp own/stage0.c moved/stage0.c || complain "other programs"
cmp own.safetensors moved.safetensors || complain "other weights"
trained "$installed" again
! grep -q 'compiling the runtime' build.log || complain "the runtime is compiled again"

# Nothing of the machine that built it is in it, nor in what it makes. (Clang names the source of OpenMP's loops where it is
# asked for what debuggers need, as in builds for tests: ";FILE;FUNCTION;LINE;COLUMN;;", before which `strings` may show what
# byte happens to stand there.)
traces() { strings "$1" | grep -E "(^|[^[:alnum:]_.-]|-[IL])$(printf %s "$2" | sed 's|[^/]|[&]|g')/" | grep -v '^.\{0,3\};.*;;$'; }
for folder in "$top" "$build"; do
  for file in "$installed" moved/stage0 moved/stage0.c moved/train; do
    found=$(traces "$file" "$folder") && complain "$file knows '$folder': $found"
  done
done
"$installed" explain PD0301 | grep -q PD0301 || complain "no page of a diagnostic"
"$installed" explain layer_norm | grep -q '^layer_norm(x' || complain "no description of a layer"
"$installed" explain layer_morm >said 2>&1 && complain "an unknown name is explained"
grep -q "did you mean 'layer_norm'" said || complain "explain: $(cat said)"
"$installed" plan -n 4 --cluster dgx_a100 --target cuda "$top/models/gpt_mini.pdm" >plan.out 2>&1 ||
  complain "no clusters: $(cat plan.out)"

# Tables of addresses are read-only once a program runs, and stacks are guarded (docs/internals/architecture.md, "Hardening").
for program in "$installed" moved/stage0; do
  readelf -d "$program" | grep -q BIND_NOW && readelf -l "$program" | grep -q GNU_RELRO || complain "$program: tables stay writable"
done
nm -u moved/stage0 | grep -q __stack_chk_fail || complain "moved/stage0: stacks are not guarded"
readelf -sW "$build/pdc" | grep -q __asan_init || nm -u "$build/pdc" | grep -q '__.*printf_chk' ||
  complain "pdc: calls are not checked (_FORTIFY_SOURCE)"

# Where the runtime cannot be kept, what to do is said.
touch file
XDG_CACHE_HOME=$work/file "$installed" -o nowhere "$top/models/mlp.pdm" >said 2>&1 && complain "a file for a cache"
grep -q "cannot write '$work/file/pdc'" said && grep -q XDG_CACHE_HOME said || complain "not what is wrong: $(cat said)"
[ ! -e nowhere ] || complain "a folder is left of a build that failed"

# A program without its files says where they should be.
mkdir -p bare/bin
cp "$installed" bare/bin
bare/bin/pdc -S -o nowhere "$top/models/mlp.pdm" >said 2>&1 && complain "builds without its files"
grep -q "$work/bare/share/pdc/stdlib_layers" said || complain "not where they should be: $(cat said)"
bare/bin/pdc doctor >said && complain "doctor does not miss the files"
grep -q '^missing *own files' said || complain "doctor: $(cat said)"

"$installed" doctor >said || complain "doctor: $(cat said)"
grep -q 'was built and trained on 2 ranks' said || complain "doctor: $(cat said)"
grep -q '^ok *system .*glibc [0-9.]*$' said && grep -q '^ok *cJSON *[0-9.]*$' said || complain "doctor says no versions: $(cat said)"
OMP_NUM_THREADS=' ' "$installed" plan --stages 2 "$top/models/mlp.pdm" >plan.out 2>&1 || complain "a blank OMP_NUM_THREADS: $(cat plan.out)"
OMP_NUM_THREADS= "$installed" doctor --cc no-such-compiler >said && complain "doctor does not miss a compiler"
grep -q "^missing *C compiler *cannot run 'no-such-compiler'" said || complain "doctor: $(cat said)"
grep -q "^note *OpenMP *'OMP_NUM_THREADS=' is not a setting" said || complain "doctor does not see a blank setting: $(cat said)"
"$installed" --version | head -n 1 | grep -qx "pdc [0-9.]*" || complain "--version"
exit $failed
