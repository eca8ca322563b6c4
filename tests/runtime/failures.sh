# Errors of users: one message with rank and cause, a failed launch, unchanged files.
launcher=mpirun
. "$(dirname "$0")/common.sh"
one 0 --steps 0 --save good.safetensors --quiet || exit 1
head -c 100 good.safetensors >cut.safetensors
echo "not to be lost" >kept
cp kept saved
sed 's/"shape":\[8\]/"shape":[ ]/; s/"shape":\[ \]/"shape":[9]/' good.safetensors >wrong_bytes.safetensors
sed 's/"shared"/"shaped"/' good.safetensors >missing.safetensors
python3 - <<'P' || exit 1
import json, struct
text = json.dumps({n: {"dtype": "F32", "shape": [2, 4], "data_offsets": [32 * i, 32 * i + 32]} for i, n in enumerate(("first", "shared", "middle", "last"))}).encode()
open("shape.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + bytes(128))
P

# check NAME MESSAGE COMMAND...: the command is refused, and changes no file.
check() {
  refused "$@"
  [ "$(cat kept saved | uniq)" = "not to be lost" ] || complain "$1: an existing file has changed"
  [ $failed = 0 ] || exit 1
}
data="--data x.npy t.npy --log kept --save saved --quiet --peak 1"

check "no data" "0 (stage 0): --data PATH is missing" two 1 --steps 3 --log kept
check "way of messages" "0 (stage 0): --comm tcp is not a transport between processors. help: use shared or mpi" two 1 $data --steps 3 --comm tcp
check "graphs on processors" "0 (stage 0): --graphs has no effect: this program runs on the CPU" two 1 $data --steps 3 --graphs
check "no steps" "0 (stage 0): unknown option '--step'" two 1 --data x.npy t.npy --step 3 --log kept
check "missing data" "0 (stage 0): cannot read 'none.npy': No such file" two 1 --data none.npy t.npy --steps 3 --log kept
check "a name with controls" "0 (stage 0): cannot read 'a?b?.npy': No such file" two 1 --data "$(printf 'a\302\233b\342\200\256.npy')" t.npy --steps 3 --log kept
check "few samples" "0 (stage 0): 'few.npy' holds 36 samples, but 'x.npy' holds 37" two 1 --data x.npy few.npy --steps 3 --log kept
check "text for numbers" "0 (stage 0): 'kept' holds tokens, but 'x' takes numbers" two 1 --data kept --steps 3 --log kept
check "missing validation" "0 (stage 0): cannot read 'none'" two 1 $data --validation none --steps 3
check "log in no directory" "0 (stage 0): cannot write log 'none/log': No such file" two 1 $data --steps 3 --log none/log
check "save in no directory" "0 (stage 0): cannot write 'none/save': No such file" two 1 $data --steps 3 --save none/save
check "save over a directory" "0 (stage 0): --save of a folder copies config.json, and no path of --init has one" two 1 $data --steps 3 --save /tmp
ln -s /proc/self/fd/1 descriptor
check "save over an open file" "0 (stage 0): cannot write 'descriptor': it is not a regular file" two 1 $data --steps 3 --save descriptor
check "missing weights" "0 (stage 0): cannot read 'none': No such file" two 1 $data --steps 3 --init none
check "cut weights" "0 (stage 0): cannot read 'cut.safetensors': it is not a safetensors file" two 1 $data --steps 3 --init cut.safetensors
check "damaged weights" "0 (stage 0): cannot read 'wrong_bytes.safetensors': tensor 'first' has 32 bytes" two 1 $data --steps 3 --init wrong_bytes.safetensors
# FIFOs, which would be waited for before any timeout; nobody writes to these, nobody reads them.
mkfifo pipe.npy pipe.json pipe.safetensors
mkdir -p piped && mkfifo piped/shard-0-of-1.safetensors
check "data from a FIFO" "0 (stage 0): cannot read 'pipe.npy': it is not a regular file" two 1 --data pipe.npy t.npy --steps 3 --log kept
for weights in pipe.json pipe.safetensors piped; do
  check "weights from a FIFO: $weights" "0 (stage 0): cannot read '$weights.*': it is not a regular file" two 1 $data --steps 3 --init $weights
done
check "log to a FIFO" "0 (stage 0): cannot write log 'pipe.json': it is a FIFO or a socket without a reader" \
  two 1 --data x.npy t.npy --quiet --peak 1 --steps 3 --log pipe.json
check "save to a FIFO" "0 (stage 0): cannot write 'pipe.json': it is not a regular file" \
  two 1 --data x.npy t.npy --quiet --peak 1 --steps 3 --save pipe.json
check "weight of another name" "0 (stage 0): 'missing.safetensors' holds no tensor 'shared'" two 1 $data --steps 3 --init missing.safetensors
check "weights of another shape" "0 (stage 0): 'shape.safetensors': tensor 'first' has shape \[2, 4\], but the model needs \[8\]" two 1 $data --steps 3 --init shape.safetensors
check "too few ranks" "0 (stage 0): launched with 1 rank, but the plan has 2. help: use mpirun -n 2" \
  $mpirun -n 1 "$programs/chain_2_0_1" $data --steps 3
check "too many ranks" "0 (stage 0): launched with 2 ranks, but the plan has 1. help: use mpirun -n 1" \
  $mpirun -n 2 "$programs/chain_1_0_1" $data --steps 3
check "another plan" "0 (stage 0): the plan of rank 1 (.*) differs from the plan of rank 0" \
  $mpirun -n 1 "$programs/chain_2_0_1" $data --steps 3 : -n 1 "$programs/chain_2_1_0" $data --steps 3
check "one stage twice" "0 (stage 0): rank 1 runs the program of stage 0, not of stage 1" \
  $mpirun -n 2 "$programs/chain_2_0_1" $data --steps 3
check "other options" "0 (stage 0): the options of rank 1 differ from the options of rank 0" \
  $mpirun -n 1 "$programs/chain_2_0_1" $data --steps 3 : -n 1 "$programs/chain_2_1_1" $data --steps 4

check "too few ranks for replicas" "0 (stage 0): launched with 3 ranks, but the plan has 4. help: use mpirun -n 4" \
  timeout 600 $mpirun -n 2 "$programs/replicas_2-2_1_12_0" $data --steps 3 : -n 1 "$programs/replicas_2-2_1_12_1" $data --steps 3
check "replicas of another stage" "0 (stage 0): rank 1 runs the program of stage 1, not of stage 0" \
  timeout 600 $mpirun -n 1 "$programs/replicas_2-2_1_12_0" $data --steps 3 : -n 3 "$programs/replicas_2-2_1_12_1" $data --steps 3
check "run below a file" "0 (stage 0): cannot create directory 'kept/run': Not a directory" \
  plan 2-2_1_12 --data x.npy t.npy --quiet --peak 1 --steps 3 --run kept/run/first
check "trace in no directory" "0 (stage 0): cannot write 'none/trace': No such file" two 1 $data --steps 3 --trace none/trace

two 1 $data --save other --log other.log --checkpoint state --steps 5 || exit 1
check "checkpoint there already" "0 (stage 0): 'state' holds a checkpoint of step 5. help: give --resume" two 1 $data --checkpoint state --steps 9
check "checkpoint newer than the end" "0 (stage 0): the checkpoint in 'state' is of step 5, beyond --steps 3" two 1 $data --checkpoint state --resume --steps 3
cp -r state piped_state && rm piped_state/step-5/shard-0-of-2.safetensors && mkfifo piped_state/step-5/shard-0-of-2.safetensors
check "checkpoint with a FIFO" "0 (stage 0): 'piped_state' holds no valid checkpoint; the newest: cannot read '.*shard-0-of-2.safetensors': it is not a regular file" \
  two 1 $data --checkpoint piped_state --resume --steps 9
check "checkpoint of another seed" "0 (stage 0): the checkpoint in 'state' was made with --seed 1" two 1 $data --checkpoint state --resume --seed 2 --steps 9
check "checkpoint at a file" "0 (stage 0): cannot create directory 'kept/x': Not a directory" two 1 $data --checkpoint kept/x --steps 9
check "resume from nowhere" "0 (stage 0): --resume needs --checkpoint DIR" two 1 $data --resume --steps 9

# During the run: the log is the run's own from its start on.
data="--data x.npy t.npy --save saved --quiet --peak 1"
check "input that is not finite" "1 (stage 1): step [0-9]*: the loss of microbatch [0-9]* is non-finite; first non-finite tensor: input 'x', row [0-9]* of its file" \
  two 1 --data nan.npy t.npy --save kept --quiet --peak 1 --steps 1000
check "validation that is not finite" "1 (stage 1): step 3: validation: the loss of microbatch [0-9]* is non-finite; first non-finite tensor: input 'x', row 12 of its file" \
  two 1 $data --validation nan.npy t.npy --steps 3

# Files that change or fill up during the run.
check "log on a full disk" "0 (stage 0): cannot write log '/dev/full': No space left" two 1 $data --steps 3 --log /dev/full
if [ "$(id -u)" = 0 ]; then # a link of another user
  ln -s kept foreign && chown -h 65534 foreign
  check "log by another user's link" "0 (stage 0): cannot write log 'foreign': Operation not permitted" two 1 $data --steps 3 --log foreign
fi
check "log over the data" "0 (stage 0): --log './x.npy' would overwrite an input file" two 1 $data --steps 3 --log ./x.npy
check "save over the data" "0 (stage 0): --save './t.npy' would overwrite an input file" \
  two 1 --data x.npy t.npy --quiet --peak 1 --steps 3 --save ./t.npy
for other in "--log ./saved" "--save-raw $work/saved" "--trace saved" "--run . --trace plan.json"; do
  check "two outputs in one place: $other" "0 (stage 0): two outputs cannot both be " two 1 $data --steps 3 $other
done
check "more steps than can be counted" "0 (stage 0): --steps 9000000000000000000 of 8 samples" two 1 $data --steps 9000000000000000000
limited() { # files of at most 8 MiB: Open MPI's own need some of it
  timeout 600 $mpirun --mca btl self -n 1 sh -c 'ulimit -f 16384 && exec "$0" "$@"' "$programs/chain_1_0_1" "$@"
}
check "log that grows too large" "0 (stage 0): cannot write log 'large': File too large" limited $data --steps 100000000 --log large
rm -f large
one 1 --data x.npy t.npy --log whole --checkpoint half --steps 5 --quiet --peak 1 || complain "a log to go on with"
{ cat whole; printf '{"step":6,"lo'; } >goes_on
one 1 --data x.npy t.npy --log goes_on --checkpoint half --resume --steps 7 --quiet --peak 1 || complain "half a line"
head -n "$(wc -l <whole)" goes_on | cmp - whole && [ "$(grep -c '^{.*}$' goes_on)" = "$(wc -l <goes_on)" ] ||
  complain "the log of a run that goes on is not of whole lines"
shortened() {
  cp x.npy short.npy
  two 1 --data short.npy t.npy --quiet --peak 1 --steps 1000000000 &
  launch=$!
  while kill -0 $launch && [ "$(grep -ls "$work/short.npy" /proc/[0-9]*/maps | wc -l)" -lt 2 ]; do sleep 0.2; done
  sleep 1
  : >short.npy
  wait $launch
}
check "data that becomes shorter" "[01] (stage [01]): cannot read 'short.npy': it became shorter while it was in use" shortened

# Nothing stays in shared memory.
numbered() { timeout 600 $mpirun -n 2 sh -c 'echo $$ >>ids; exec "$0" "$@"' "$programs/replicas_2_0_12_0" "$@"; }
check "replicas that fail" "0 (stage 0): step 1: the loss of microbatch [0-9]* is non-finite" \
  numbered --data nan.npy t.npy --save kept --quiet --peak 1 --steps 1000
for p in $(cat ids); do
  left=$(find /dev/shm -name "*_${p}_*" -newer kept) # older ones are of processes that had the same number
  [ "$left" ] && complain "process $p leaves $left"
done

# A rank that never starts, one that stops answering, and one that is killed.
unstarted() {
  timeout 600 $mpirun -n 1 "$programs/chain_2_0_1" "$@" : -n 1 sh -c 'kill -s STOP $$; exec "$0" "$@"' "$programs/chain_2_1_1" "$@"
}
check "rank that does not start" "0 (stage 0): nothing came for [0-9]* s (--timeout): waited for all ranks to start" \
  unstarted $data --timeout 5 --steps 3
endless() { "$@" $data --log endless.log --timeout 5 --steps 1000000000; }
check "silent rank" "0 (stage 0): nothing came for [0-9]* s (--timeout): waited for .* from rank 1" stopped STOP chain_2_1_1 endless two 1
outlives chain_2_0_1 chain_2_1_1 && complain "a rank outlives its launch"
check "silent replica" "[0-4] (stage [012]): nothing came for [0-9]* s (--timeout): waited for " stopped STOP replicas_1-3-1_1_12_1 endless plan 1-3-1_1_12
stopped KILL replicas_3-2-3_0_12_0 endless plan 3-2-3_0_12 >out 2>err && complain "killed replica: the launch reports no failure"
grep -q "exited on signal 9" err || complain "killed replica: $(cat err)"
outlives replicas_1-3-1_1_12_1 replicas_3-2-3_0_12_0 && complain "a replica outlives its launch"
stopped KILL chain_2_1_1 endless two 1 >out 2>err && complain "killed rank: the launch reports no failure"
grep -q "rank 1 .*exited on signal 9\|exited on signal 9" err || complain "killed rank: $(cat err)"
[ "$(cat kept)" = "not to be lost" ] || complain "killed rank: an existing file has changed"
exit $failed
