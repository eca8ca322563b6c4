# Two runs with the same outputs: the second is refused with the first's process and host, and changes no file. Locks of a
# killed run do not block; no lock file remains. Files that pdc built are never overwritten.
launcher=mpirun
. "$(dirname "$0")/common.sh"
data="--data x.npy t.npy --quiet --peak 1"

# first OPTIONS...: a run without end; returns once it has logged an update.
first() {
  rm -f first.jsonl
  timeout 600 $mpirun -n 1 "$programs/chain_1_0_1" $data --steps 1000000000 --log first.jsonl "$@" >first.out 2>&1 &
  launch=$!
  while ! grep -qs '"step"' first.jsonl && kill -0 $launch 2>/dev/null; do sleep 0.05; done
  process=
  for p in $(pidof chain_1_0_1); do
    [ "$(readlink /proc/$p/cwd)" = "$work" ] && process=$p && kill -s STOP "$p" # it has its locks, and no processor
  done
}
# last: ends it; killed, as nothing that it could do about it
last() {
  kill -s KILL "$process"
  wait $launch
}
host=$(hostname)
mkdir folder && ln -s folder linked
first --save w.safetensors --checkpoint folder --run run --tensorboard board
[ -n "$process" ] || { complain "the first run does not start: $(cat first.out)"; exit 1; }
for second in "--log first.jsonl" "--save ./w.safetensors" "--trace $work/run/trace.json" "--checkpoint linked/ --resume" \
  "--tensorboard board"; do
  refused "$second" "0 (stage 0): .* is in use by another run: process $process on host $host" \
    one 1 $data --steps 2 $second
done
lines=$(wc -l <first.jsonl)
[ "$lines" -gt 1 ] || complain "the first run's log was emptied"
last
[ -e first.jsonl.lock ] && [ -e folder/.lock ] || complain "a killed run's lock is not where it is looked for"
one 1 $data --steps 2 --log first.jsonl --save w.safetensors --checkpoint folder --run run --tensorboard board || complain "a killed run's locks hold others up"
left=$(find . -name '*.lock')
[ -z "$left" ] || complain "left of a run: $left"

# Of many that start at once in one place one runs.
for i in 1 2 3; do
  one 1 $data --steps 1000000 --log shared.jsonl --timeout 60 >out.$i 2>err.$i &
  eval "pid$i=$!"
done
while [ "$(cat err.* | grep -c 'is in use by another run')" -lt 2 ]; do sleep 0.1; done
for p in $(pidof chain_1_0_1); do
  [ "$(readlink /proc/$p/cwd)" = "$work" ] && kill -s TERM "$p"
done
wait
[ "$(grep -c '"event":"start"' shared.jsonl)" = 1 ] || complain "two runs wrote one log"
[ ! -e shared.jsonl.lock ] || complain "a lock is left of a run that was interrupted"

# The program itself, and what stands beside it.
mkdir build && cp "$programs/chain_1_0_1" build/stage0 && : >build/stage0.c
beside() { timeout 600 $mpirun -n 1 build/stage0 $data --steps 2 "$@"; }
for output in "--log build/stage0" "--save build/../build/stage0.c" "--trace build/train"; do
  refused "$output" "0 (stage 0): .* would overwrite a file of the program that pdc built" beside $output
done
cmp "$programs/chain_1_0_1" build/stage0 || complain "the program was written over"
beside --log build/log.jsonl --save build/stage.safetensors || complain "a folder of a build cannot be written to"

echo "no folder" >before.txt
# Names of locks and of checkpoints' files, and a file that only has a lock's name.
one 1 $data --steps 2 --checkpoint steps || complain "a checkpoint"
ln -s steps/step-2 newest
for output in "--save steps/step-2/shard-0-of-1.safetensors" "--log steps/step-2/manifest.json" \
  "--save newest/manifest.json" "--trace steps/best.json"; do
  refused "$output" "0 (stage 0): ${output% *} '${output#* }' would overwrite a file of a checkpoint" \
    one 1 $data --steps 3 --checkpoint steps --resume $output
done
refused "a file for a folder" "0 (stage 0): 'before.txt' is not a directory" one 1 $data --steps 2 --checkpoint before.txt
refused "another run's best.json" "0 (stage 0): --save 'steps/best.json' would overwrite a file of a checkpoint" \
  one 1 $data --steps 2 --save steps/best.json
refused "a lock's name" "0 (stage 0): --save 'a.lock' has the name of a lock file" one 1 $data --steps 2 --log a --save a.lock
echo "not to be lost" >b.lock
refused "a file of a lock's name" "0 (stage 0): --log 'b': cannot lock '.*/b.lock': this name belongs to another kind of file" \
  one 1 $data --steps 2 --log b
[ "$(cat b.lock)" = "not to be lost" ] || complain "a file that is no lock was removed"
one 1 $data --steps 3 --checkpoint steps --resume || complain "a checkpoint that was not written over"

ln first.jsonl hard && cp first.jsonl before
refused "a file of two names" "0 (stage 0): two outputs cannot both be 'hard': --log and --save" \
  one 1 $data --steps 2 --log first.jsonl --save hard
cmp before first.jsonl || complain "a refused run changed a file"
exit $failed
