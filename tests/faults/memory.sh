# --audit reports a bit that flips in memory between two updates before the next update. Without flips it reports nothing, and
# results do not depend on it. A lost message of a checkpoint is reported, too.
#   memory.sh PDC INJECT
pdc=$1 inject=$(realpath "$2")
. "$(dirname "$0")/../launch.sh"
level=-O0
text=$top/tests/reference/text.txt
gpt="-n 2 -D n_layer=2 -D n_ctx=16 -D vocab_size=130 -D n_embd=16 -D n_head=2 --stages 2 -D batch=8 --microbatch 2"
for schedule in 2bw flush; do
  build $schedule $gpt --schedule $schedule "$top/models/gpt2.pdm" || exit 1
  for audit in "" "--audit=1"; do
    launch 2 $schedule --data "$text" --steps 12 $audit --log "log$audit" --save "w$audit" || complain "$schedule $audit"
    figures "log$audit" >"figures$audit"
  done
  cmp w w--audit=1 && cmp figures figures--audit=1 || complain "$schedule: --audit changes results"
  for at in 0 1024 4096; do
    $mpirun -n 2 -x LD_PRELOAD="$inject" -x PD_FAULT=memory:23:1 -x PD_FAULT_AT=$at $schedule/train --quiet --peak 1e9 \
      --timeout 60 --data "$text" --steps 200 --audit 1 --checkpoint "state$at" >out 2>err &&
      complain "$schedule: a bit at $at is not found"
    grep -q "fault: memory" err || complain "$schedule: no bit was changed: $(cat err)"
    grep -q "^pd: rank 1 (stage 1): --audit: step [0-9]*: .* of '.*' changed after update [0-9]*" err ||
      complain "$schedule: a bit at $at: said was $(cat err)"
    rm -rf "state$at"
  done
done

# A bit that changes while an update is under way: of the weights (the largest tensor, whose size no other array has) and
# moments between the check and their use, just after the update was run twice, and after the last one.
flipped() { # SCHEDULE FAULT STEPS MESSAGE
  schedule=$1 fault=$2 steps=$3 message=$4
  $mpirun -n 2 -x LD_PRELOAD="$inject" -x PD_FAULT="$fault:1" -x PD_FAULT_BYTES=8320 $at $schedule/train --quiet --peak 1e9 --timeout 60 \
    --data "$text" --steps "$steps" --audit 1 --save flipped >out 2>err && complain "$schedule: $fault is not found"
  grep -q "fault: ${fault%:*}" err || complain "$schedule: no bit was changed: $(cat err)"
  grep -q "^pd: rank 1 (stage 1): --audit: step $message of '.*' changed after" err || complain "$schedule: $fault: $(cat err)"
}
build zb_h1 $gpt --schedule zb_h1 "$top/models/gpt2.pdm" || exit 1
at=
flipped zb_h1 copied:19 6 "3: the weights"
flipped zb_h1 copied:23 6 "3: the second moments"
flipped zb_h1 compared:7 6 "4: the weights"
flipped zb_h1 compared:8 6 "4: the first moments"
flipped zb_h1 compared:7 3 "4: the weights"
at="-x PD_FAULT_AT=0" # the version of the weights that 2bw's update reads
flipped 2bw copied:19 6 "4: an older version of the weights"
[ -e flipped ] && complain "weights of which a bit changed are saved"

# What a rank says of its shard is lost, and what it says of the next one stands in its place: no manifest has it.
$mpirun -n 2 -x LD_PRELOAD="$inject" -x PD_FAULT=lost:3:1 2bw/train --quiet --peak 1e9 --timeout 60 --data "$text" --steps 6 \
  --checkpoint state --checkpoint-every 2 >out 2>err && complain "a lost note is not found"
grep -q "^pd: rank 0 (stage 0): the description of rank 1's shard of step 2 did not arrive, but the description of step 4 did: a message was lost" err ||
  complain "a lost note: $(cat err)"
[ -z "$(ls state/step-*/manifest.json 2>/dev/null)" ] || complain "a manifest of another step's shards: $(ls state/*)"
exit $failed
