# Errors of users: one message with the cause, a failed launch in time, unchanged files.
#   failures.sh PDC
pdc=$1
launcher=mpirun
. "$(dirname "$0")/common.sh"
level=-O0
echo "not to be lost" >kept

# check NAME STATUS PATTERN COMMAND...: fails with that status (-: any but 0) and one such message, and does not hang.
check() {
  name=$1 wanted=$2 pattern=$3
  shift 3
  "$@" >out 2>err
  status=$? # 124: it hung, and launch's timeout ended it
  if [ "$wanted" = - ]; then
    [ $status != 0 ] && [ $status != 124 ] || complain "$name: exit status $status"
  else
    [ $status = "$wanted" ] || complain "$name: exit status $status, not $wanted"
  fi
  [ "$(grep -c "$pattern" err)" = 1 ] || { complain "$name: expected '$pattern' once in:"; cat err >&2; }
  [ "$(cat kept)" = "not to be lost" ] && return
  complain "$name: an existing file has changed"
  echo "not to be lost" >kept
}

# ---- the compiler ----------------------------------------------------------------------------------
mlp="$top/models/mlp.pdm"
check "more workers than cut points" 1 "^.*error: .*\[PD05" "$pdc" -S -o no -n 40 --stages 40 "$mlp"
check "too few microbatches for 2bw" 1 "^.*error: .*\[PD0" \
  "$pdc" -S -o no -n 3 --stages 3 -D batch=1 --microbatch 1 --schedule 2bw "$mlp"
check "batch and microbatch" 1 "^.*error: .*\[PD0" "$pdc" -S -o no -D batch=8 --microbatch 3 "$mlp"
check "no memory" 1 "^.*error: no plan fits .*\[PD05" \
  "$pdc" -S -o no --memory 1MiB "$top/models/gpt_mini.pdm"
check "unknown attribute" 1 "^.*error: .*n_layers.*\[PD0" "$pdc" -S -o no -D n_layers=3 "$mlp"
check "missing model" 1 "none.pdm" "$pdc" -S -o no none.pdm
check "unknown option" 2 "stage-count" "$pdc" --stage-count 3 "$mlp"
check "unknown command" 2 "no command 'plna'; did you mean 'plan'" "$pdc" plna "$mlp"
check "output folder under a file" 1 "kept" "$pdc" -S -o kept/build "$mlp"
[ ! -e no ] || complain "a refused request leaves an output folder"

# ---- the launch --------------------------------------------------------------------------------------
tiny_gpt wild -n 2 --stages 2 --microbatch 2 --schedule 2bw -D "optimizer=sgd(lr = 1e30)" || exit 1
tiny_gpt two -n 2 --stages 2 --microbatch 2 --schedule 2bw || exit 1
launch 2 two --steps 0 --save good.safetensors || complain "--steps 0"
head -c 1000 good.safetensors >cut.safetensors
sed 's/"shape":\[128,32\]/"shape":[32,128]/' good.safetensors >shape.safetensors
printf 'seventeen bytes \377' >token.txt
printf 'short' >short.txt
files="--log kept --save kept"
rank="^pd: rank [01] (stage [01]):"

check "missing data" - "$rank .*none.txt" launch 2 two --data none.txt --steps 3 $files
check "short data" - "$rank .*short.txt.* 5 tokens" launch 2 two --data short.txt --steps 3 $files
check "token out of range" - "$rank .*token.txt.*token 255" launch 2 two --data token.txt --steps 3 $files
check "wrong shape" - "$rank .*shape \[32, 128\], but the model needs \[128, 32\]. help: .*, give the layer 'stored = in_out'" \
  launch 2 two --data train.txt --steps 3 --init shape.safetensors $files
check "cut weights" - "$rank .*cut.safetensors" \
  launch 2 two --data train.txt --steps 3 --init cut.safetensors $files
check "unwritable log" - "$rank .*no/log" launch 2 two --data train.txt --steps 3 --save kept --log no/log
check "unwritable weights" - "$rank .*no/save" \
  launch 2 two --data train.txt --steps 3 --log kept --save no/save
check "one rank for two stages" - "^pd: rank 0: .* 2 stage.* launch has 1 rank" \
  launch 1 two --data train.txt --steps 3 $files
check "three ranks for two stages" - "^pd: rank 0: .* 2 stage.* launch has 3 rank" \
  launch 3 two --data train.txt --steps 3 $files
check "loss that is not finite" - "$rank step [0-9]*.*non-finite.*tensor" \
  launch 2 wild --data train.txt --steps 400 --log wild.jsonl --save kept

# ---- a rank that is killed, and one that stops answering ------------------------------------------------
# signalled SIGNAL STAGE: that stage's rank gets it once the run has logged an update.
signalled() {
  rm -f endless.jsonl
  launch 2 two --data train.txt --steps 100000000 --timeout 5 --log endless.jsonl --save kept &
  running=$!
  while ! grep -q '"step"' endless.jsonl 2>/dev/null && kill -0 $running 2>/dev/null; do sleep 0.1; done
  for pid in $(pidof "stage$2"); do
    [ "$(readlink "/proc/$pid/cwd")" = "$work" ] && kill -s "$1" "$pid"
  done
  wait $running
}
check "silent last rank" - "^pd: rank 0 (stage 0): nothing came for [0-9]* s.* rank 1" signalled STOP 1
check "silent first rank" - "^pd: rank 1 (stage 1): nothing came for [0-9]* s.* rank 0" signalled STOP 0
check "killed rank" - "exited on signal 9" signalled KILL 1
for pid in $(pidof stage0 stage1); do
  [ "$(readlink "/proc/$pid/cwd")" = "$work" ] && complain "process $pid outlives its launch"
done
exit $failed
