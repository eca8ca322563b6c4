# Traces of small runs of every kind are whole, in order, and change no bit:  trace.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
level=-O0
head -c 560 "$top/tests/reference/text.txt" >train.txt
tail -c 129 "$top/tests/reference/text.txt" >validation.txt

# tiny DIR OPTIONS...: a GPT-2 of four blocks
tiny() {
  dir=$1
  shift
  build "$dir" -D n_layer=4 -D n_head=2 -D n_embd=32 -D n_ctx=16 -D vocab_size=128 -D p_drop=0.2 -D batch=8 \
    -D clip_norm=0.5 "$@" "$top/models/gpt2.pdm"
}

# train RANKS DIR NAME OPTIONS...: six updates
train() {
  n=$1 dir=$2 name=$3
  shift 3
  launch "$n" "$dir" --data train.txt --validation validation.txt --validate-every 4 --steps 6 \
    --save "$name.safetensors" "$@" || { complain "$name does not train"; return 1; }
}

# traced RANKS NAME DELAYS OPTIONS...: builds, trains with a trace, checks it
traced() {
  n=$1 name=$2 delays=$3
  shift 3
  tiny "$name" -n "$n" "$@" && train "$n" "$name" "$name" --run "run.$name" || return
  python3 "$here/check_trace.py" "run.$name" 6 "$delays" || complain "$name: the trace"
}

traced 2 2bw 1,1 --stages 2 --microbatch 2 --schedule 2bw
traced 3 flush 0,0,0 --stages 3 --microbatch 1 --schedule flush --recompute on
traced 2 gpipe 0,0 --stages 2 --microbatch 2 --schedule gpipe
traced 3 pipedream 2,2,2 --stages 3 --microbatch 8 --schedule pipedream -D vertical_sync=true
traced 2 interleaved 0,0 --stages 2 --microbatch 2 --schedule interleaved
traced 2 zb_h1 0,0 --stages 2 --microbatch 2 --schedule zb_h1
traced 3 replicas 1,1 --stages 2 --replicas 2,1 --microbatch 1 --schedule 2bw
traced 1 alone 0 --stages 1 --microbatch 4 --schedule flush

# Weight stashing without vertical sync: each stage's weights have an age of their own.
build stashing -n 3 --stages 3 --microbatch 8 --schedule pipedream -D n_layer=2 -D n_head=4 -D n_kv_head=2 \
  -D n_embd=32 -D hidden=48 -D n_ctx=16 -D vocab_size=128 -D batch=8 -D clip_norm=0 "$top/models/llama_mini.pdm" &&
  train 3 stashing stashing --run run.stashing && python3 "$here/check_trace.py" run.stashing 6 2,1,0 ||
  complain "the trace of weight stashing"

# With and without a trace: the same bits.
train 2 2bw plain --log plain.jsonl && cmp plain.safetensors 2bw.safetensors || complain "a trace changes weights"
figures plain.jsonl >plain.figures
figures run.2bw/log.jsonl | cmp - plain.figures || complain "a trace changes losses"
[ "$(wc -l <plain.figures)" = 8 ] || complain "not six updates and two validations"

# What is emulated has a trace, too, as long as was planned.
train 2 2bw emulated --emulate --run run.emulated && python3 "$here/check_trace.py" run.emulated 6 1,1 ||
  complain "the trace of an emulated run"

# A run that is killed leaves the earlier trace as it was, and nothing beside it but the file that it had locked.
mkdir run.killed
cp run.2bw/trace.json run.killed/
$mpirun -n 2 2bw/train --quiet --peak 1e9 --data train.txt --steps 1000000 --run run.killed 2>/dev/null &
while ! grep -qs '"step":3' run.killed/log.jsonl && kill -0 $! 2>/dev/null; do sleep 0.2; done
launched=$!
for rank in $(pgrep -f "^2bw/stage[01] .*--run run.killed"); do
  [ "$(readlink "/proc/$rank/cwd")" != "$work" ] || kill -9 "$rank"
done
wait $launched 2>/dev/null
cmp run.2bw/trace.json run.killed/trace.json || complain "a killed run changes the trace"
[ "$(ls run.killed | grep -v '\.lock$' | grep -c trace)" = 1 ] || complain "a killed run leaves parts of a trace"

# A trace that cannot be written is refused before the run; one that would write over the data as well.
launch 2 2bw --data train.txt --steps 2 --trace nowhere/trace.json 2>said && complain "a trace in no folder"
grep -q "cannot write 'nowhere/trace.json'" said || complain "unwritable trace: $(cat said)"
launch 2 2bw --data train.txt --steps 2 --trace train.txt 2>said && complain "a trace over the data"
grep -q "would overwrite an input file" said || complain "trace over data: $(cat said)"
exit $failed
