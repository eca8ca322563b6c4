# Passes and updates that --audit runs twice leave the same results, under every schedule, with dropout, recomputation, replicas and
# running averages, by elementwise and whole-tensor rules; a wrong bit in one run is reported.
#   twice.sh PDC INJECT [cuda]      # or on tests/cuda/host
pdc=$1 inject=$(realpath "$2") target=${3:-c}
. "$(dirname "$0")/../launch.sh"
level=-O0
text=$top/tests/reference/text.txt
steps=6 blocks=4
[ $target = c ] || steps=3 blocks=2
gpt="-D n_layer=$blocks -D n_ctx=16 -D vocab_size=128 -D n_embd=16 -D n_head=2 -D p_drop=0.1 -D batch=8 --microbatch 2"

# same NAME RANKS DATA OPTIONS... MODEL: the same weights and figures without --audit and with it, and the planned memory.
same() {
  name=$1 ranks=$2 data=$3
  shift 3
  build "$name" -n "$ranks" --stages 2 "$@" || return
  for audit in "" --audit=1 --audit=2; do
    launch "$ranks" "$name" --data $data --steps $steps $audit $with --log "log$audit" --save "w$audit" || complain "$name $audit"
    figures "log$audit" >"figures$audit"
    cmp w "w$audit" && cmp figures "figures$audit" || complain "$name: $audit changes results"
  done
  grep -q '"audit_copy_bytes":\[[1-9]' log--audit=1 || complain "$name: no pass is run twice"
}

# audited FAULT: trains with it: compute:NUMBER:RANK, or count:0:RANK.
audited() {
  if [ $target = cuda ]; then
    CUBLASLT_HOST_ERR="${1#*:}" launch 2 "$name" --data "$text" --steps $steps --audit 1 >out 2>err
    return
  fi
  $mpirun -n 2 -x LD_PRELOAD="$inject" -x PD_FAULT="$1" "$name/train" --quiet --peak 1e9 --timeout 60 --data "$text" \
    --steps $steps --audit 1 >out 2>err
}
# named RANK NUMBER WHAT: a bit of what the rank's NUMBER-th product has computed changes.
named() {
  audited "compute:$2:$1" && complain "$name: product $2 of rank $1 is not found"
  grep -Eq "fault: compute|product $2 errs" err || complain "$name: no bit was changed: $(cat err)"
  grep -Eq "^pd: rank $1 \(stage $1\): --audit: step 1: $3" err || complain "$name: product $2 of rank $1: $(cat err)"
}

# A bit of what dropout then drops makes no difference: bits are changed in programs that drop nothing.
undropped() {
  build 2bw -n 2 --stages 2 $(echo "$gpt" | sed 's/p_drop=0.1/p_drop=0/') --schedule 2bw "$top/models/gpt2.pdm"
}

with=
if [ $target = cuda ]; then
  same 2bw 2 "$text" $gpt -D delay_correction=auto -D 'freeze="wpe"' --schedule 2bw "$top/models/gpt2.pdm"
  undropped
  named 0 2 "two runs of forward of microbatch 1 differ in 'h.0"
  named 1 4 "two runs of (for|back)ward of microbatch 1 differ in "
  same muon 2 "$text" $gpt --schedule flush --recompute on -D "optimizer=muon(lr=1e-3)" "$top/models/gpt2.pdm"
  number=60 # behind all passes' products
  until audited "compute:$number:1"; grep -q "step 1: two runs of the update differ in the weights of 'h" err; do
    number=$((number + 30))
    [ $number -lt 600 ] || { complain "no product of the update among 600: $(cat err)"; break; }
  done
  precision=bf16 with=--graphs
  same bf16 3 "$text" $gpt --schedule flush --replicas 2,1 -D "ema=0.9" "$top/models/gpt2.pdm"
  exit $failed
fi
same 2bw 2 "$text" $gpt -D delay_correction=auto -D 'freeze="wpe"' --schedule 2bw "$top/models/gpt2.pdm"
undropped
named 0 2 "two runs of forward of microbatch 1 differ in 'h.0"
number=2 # in how many parts a product is made depends on the processor: one after the other, up to the last of the pass
until named 1 $number "two runs of forward of microbatch 1 differ in '" && grep -q "in 'logits" err; do
  number=$((number + 1))
  [ $number -lt 60 ] || { complain "no product of the logits among 60"; break; }
done
same flush 2 "$text" $gpt --schedule flush --recompute on -D "optimizer=muon(lr=1e-3)" "$top/models/gpt2.pdm"
audited count:0:1 || complain "$name: $(cat err)"
number=$(sed -n 's/^calls: compute //p' err)
named 1 $((number / 6)) "two runs of the update differ in the weights of 'h"
same zb_h1 2 "$text" $gpt --schedule zb_h1 -D "optimizer=adafactor(lr=1e-3)" "$top/models/gpt2.pdm"
same gpipe 2 "$text" $gpt --schedule gpipe -D "ema=0.9" "$top/models/gpt2.pdm"
same interleaved 2 "$text" $gpt --schedule interleaved --recompute on "$top/models/gpt2.pdm"
same replicas 3 "$text" $gpt --schedule 2bw --replicas 2,1 "$top/models/gpt2.pdm"
same averages 2 "$text" --microbatch 2 --schedule 2bw "$top/tests/bits/images.pdm"
of_c=bf16
same bf16 2 "$text" $gpt --schedule flush "$top/models/gpt2.pdm"
exit $failed
