# pdc_add_model() in a project of a user's.  project.sh PDC CMAKE
pdc=$1 cmake=$2
. "$(dirname "$0")/common.sh"
install_moved
cp -r "$here/project" project

"$cmake" -S project -B out -G Ninja -DCMAKE_PREFIX_PATH="$place" >log 2>&1 || { complain "configure: $(cat log)"; exit 1; }
"$cmake" --build out >log 2>&1 || { complain "build: $(cat log)"; exit 1; }
[ -x out/tiny.build/train ] && [ -x out/tiny.build/stage1 ] && [ ! -e out/tiny.build/stage2 ] || complain "not two stages"
[ -x out/tiny_infer.build/infer ] && [ ! -e out/tiny_infer.build/stage0 ] || complain "no programs for inference"
out/score | grep -q "cannot read 'absent.safetensors'" || complain "a program with the model's library"

# changed FILE EXPECTED: whether a build after touching the file makes the programs again.
changed() {
  sleep 1
  touch "$1"
  "$cmake" --build out -v >log 2>&1 || complain "build after a change of $1: $(cat log)"
  if grep -q 'Building stage programs\|bin/pdc' log; then found=yes; else found=no; fi
  [ "$found" = "$2" ] || complain "after a change of $1 programs are made again: $found"
}
changed project/README no
changed project/layers.pdm yes
changed project/models/tiny.pdm yes
changed "$place/share/pdc/stdlib_layers/nn.pdm" yes
changed "$installed" yes
changed project/README no

echo 'model tiny(' >project/models/tiny.pdm
"$cmake" --build out >log 2>&1 && complain "a model with an error builds"
grep -q 'tiny.pdm:2:1: error' log || complain "the error's place is not shown: $(cat log)"
[ -x out/tiny.build/train ] || complain "an error removes programs"

printf 'find_package(Pdc REQUIRED)\npdc_add_model(x x.pdm STAGE 2)\n' >>project/CMakeLists.txt
"$cmake" -S project -B out >log 2>&1 && complain "an unknown argument is taken"
grep -q 'unknown arguments: STAGE;2' log || complain "not the argument: $(cat log)"
exit $failed
