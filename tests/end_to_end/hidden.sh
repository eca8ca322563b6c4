# muon, whose hidden matrices are found before the model is cut: every plan gives the same bytes, with a tied table, a
# hidden matrix that several stages hold, frozen parameters, groups and averages; so does an interrupted run.
# Its memory is what the plan says.   hidden.sh PDC
pdc=$1
. "$(dirname "$0")/common.sh"
level=-O0

# make NAME RANKS OPTIONS...: compiles for microbatches of one sample and trains.
make() {
  name=$1 ranks=$2
  shift 2
  build "$name" -n "$ranks" --microbatch 1 "$@" "$top/tests/end_to_end/hidden.pdm" && train_tiny "$ranks" "$name"
}

make flush 1 --schedule flush
for stages in 2 4; do
  make "flush$stages" "$stages" --stages "$stages" --schedule flush && same flush "flush$stages"
done
make again 2 --stages 2 --schedule flush --recompute on && same flush again
make zb_h1 3 --stages 3 --schedule zb_h1 && same flush zb_h1
make interleaved 2 --stages 2 --schedule interleaved -D chunks=2 && same flush interleaved
make 2bw 1 --schedule 2bw
for stages in 2 4; do
  make "2bw$stages" "$stages" --stages "$stages" --schedule 2bw && same 2bw "2bw$stages"
done

# What several stages hold, each of them updates.
for stage in 0 1 2 3; do
  grep -A 1 '"shared"' flush4/stage$stage.c | grep -q 'hidden = true' || complain "'shared' is not hidden on stage $stage"
done

# A checkpoint of one plan continued by another; one of other exceptions is told.
for half in 6 12; do
  [ $half = 6 ] && ranks=2 of=flush2 || ranks=4 of=flush4
  launch $ranks $of --data train.txt --steps $half --seed 5 --checkpoint kept --resume-or-start --log "$of.resumed.jsonl" \
    --save resumed.safetensors 2>said.txt || { cat said.txt; complain "$of does not resume"; }
done
cmp flush.safetensors resumed.safetensors || complain "other weights after --resume"
build others -n 1 --microbatch 1 --schedule flush -D "optimizer=muon(adamw = \"h.2\")" "$top/tests/end_to_end/hidden.pdm"
launch 1 others --data train.txt --steps 13 --seed 5 --checkpoint kept --resume 2>said.txt &&
  complain "moments of other methods are taken"
grep -q "holds no 'moment2.h.2.mlp" said.txt || { cat said.txt; complain "not told so"; }

# The optimizer's memory: a moment of hidden matrices, two of the others, averages; and one other pattern, where all have two.
number() { sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" "$2/plan.json" | sed -n 1p; }
build adamw -n 1 --microbatch 1 --schedule flush -D "optimizer=muon(adamw = \"*\")" "$top/tests/end_to_end/hidden.pdm"
saved=$(($(number optimizer_bytes adamw) - $(number optimizer_bytes flush)))
[ $saved = $((4 * (32 * 32 + 4 * 32 * 96))) ] || complain "hidden matrices save $saved bytes of moments"

# Replicas update alike, up to the order of sums over microbatches; and the same on a device.
last_loss() { sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$1.figures" | tail -n 1; }

# near A B SHARE: the losses of the last updates differ by no more.
near() {
  awk -v a="$(last_loss "$1")" -v b="$(last_loss "$2")" -v share="$3" \
    'BEGIN { exit !(a > 0 && a - b <= share * a && b - a <= share * a) }' ||
    complain "$2: a loss of $(last_loss "$2"), not $(last_loss "$1")"
}

make replicas 2 --schedule flush --stages 1 --replicas 2 && near flush replicas 1e-5
if [ -f "$(dirname "$pdc")/tests/cuda/host/compile" ]; then
  target=cuda make device 2 --stages 2 --schedule 2bw && near 2bw device 1e-4
  target=cuda precision=bf16 make rounded 2 --stages 2 --schedule 2bw && near 2bw rounded 0.02
fi
exit $failed
