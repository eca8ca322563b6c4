# Passes and updates that --audit runs twice leave the same results, under every schedule, with dropout, recomputation, replicas and
# running averages, by rules of elements and of whole tensors; a bit that one run of them computes otherwise is found and named.  twice.sh PDC INJECT
pdc=$1 inject=$(realpath "$2")
. "$(dirname "$0")/../launch.sh"
level=-O0
text=$top/tests/reference/text.txt
gpt="-D n_layer=4 -D n_ctx=16 -D vocab_size=128 -D n_embd=16 -D n_head=2 -D p_drop=0.1 -D batch=8 --microbatch 2"

# same NAME RANKS DATA OPTIONS... MODEL: the same weights and figures without --audit and with it, and the planned memory.
same() {
  name=$1 ranks=$2 data=$3
  shift 3
  build "$name" -n "$ranks" --stages 2 "$@" || return
  for audit in "" --audit=1 --audit=2; do
    launch "$ranks" "$name" --data $data --steps 6 $audit --log "log$audit" --save "w$audit" || complain "$name $audit"
    figures "log$audit" >"figures$audit"
    cmp w "w$audit" && cmp figures "figures$audit" || complain "$name: $audit changes results"
  done
  grep -q '"audit_copy_bytes":\[[1-9]' log--audit=1 || complain "$name: no pass is run twice"
}

# audited FAULT: trains with it.
audited() {
  $mpirun -n 2 -x LD_PRELOAD="$inject" -x PD_FAULT="$1" "$name/train" --quiet --peak 1e9 --timeout 60 --data "$text" \
    --steps 6 --audit 1 >out 2>err
}
# named RANK NUMBER WHAT: a bit of what the rank's NUMBER-th product has computed changes.
named() {
  audited "compute:$2:$1" && complain "$name: product $2 of rank $1 is not found"
  grep -q "fault: compute" err || complain "$name: no bit was changed: $(cat err)"
  grep -Eq "^pd: rank $1 \(stage $1\): --audit: step 1: $3" err || complain "$name: product $2 of rank $1: $(cat err)"
}

same 2bw 2 "$text" $gpt --schedule 2bw "$top/models/gpt2.pdm"
named 0 2 "forward of microbatch 1, .* leave the same in 'h.0"
number=2 # in how many parts a product is made depends on the processor: one after the other, up to the last of the pass
until named 1 $number "forward of microbatch 1, .* leave the same in '" && grep -q "in 'logits" err; do
  number=$((number + 1))
  [ $number -lt 60 ] || { complain "no product of the logits among 60"; break; }
done
same flush 2 "$text" $gpt --schedule flush --recompute on -D "optimizer=muon(lr=1e-3)" "$top/models/gpt2.pdm"
audited count:0:1 || complain "$name: $(cat err)"
number=$(sed -n 's/^calls: compute //p' err)
named 1 $((number / 6)) "the update, run twice, does not leave the same in the weights of 'h"
same zb_h1 2 "$text" $gpt --schedule zb_h1 -D "optimizer=adafactor(lr=1e-3)" "$top/models/gpt2.pdm"
same gpipe 2 "$text" $gpt --schedule gpipe -D "ema=0.9" "$top/models/gpt2.pdm"
same interleaved 2 "$text" $gpt --schedule interleaved --recompute on "$top/models/gpt2.pdm"
same replicas 3 "$text" $gpt --schedule 2bw --replicas 2,1 "$top/models/gpt2.pdm"
same averages 2 "$text" --microbatch 2 --schedule 2bw "$top/tests/bits/images.pdm"
of_c=bf16
same bf16 2 "$text" $gpt --schedule flush "$top/models/gpt2.pdm"
exit $failed
