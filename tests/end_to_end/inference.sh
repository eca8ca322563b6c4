# Evaluation, by programs for inference and by those of a training, gives validation's numbers on any plan:
#   inference.sh PDC MODEL      (gpt, sequences or images)
pdc=$1 model=$2
. "$(dirname "$0")/common.sh"
level=-O0 more_flags=-Wall,-Wextra,-Werror
tail -c 113 "$text" >held_out.txt # the last microbatch is not whole
if [ "$model" != gpt ]; then cp validation.txt held_out.txt; fi

# infer N DIR OPTIONS...: evaluates with N ranks.
infer() {
  ranks=$1 program=$2/infer
  shift 2
  $mpirun -n "$ranks" "$program" --quiet --timeout 300 "$@"
}

# evaluated LOG: the figures of its evaluation; validated LOG: those of its last validation, under the same names.
evaluated() { sed -n 's/^{"event":"evaluation",\(.*\),"samples_per_s".*/\1/p' "$1"; }
validated() { sed -n 's/"validation_/"/g; s/^{"step":[0-9]*,\("loss":.*,"samples":[0-9]*\),"ms".*/\1/p' "$1" | tail -n 1; }
alike() { evaluated "$1.jsonl" | cmp - want || complain "$1: other figures than validation's: $(evaluated "$1.jsonl")"; }

# says WANT COMMAND...: it fails with this in its message.
says() {
  want=$1
  shift
  "$@" >out 2>&1 && complain "not refused: $*"
  grep -qF -- "$want" out || complain "$*: '$want' expected, not: $(head -n 3 out)"
}

"tiny_$model" trained --stages 2 --microbatch 2 --schedule 2bw || exit 1
launch 2 trained --data train.txt --validation held_out.txt --steps 4 --seed 5 --log trained.jsonl \
  --save w.safetensors --checkpoint states || exit 1
validated trained.jsonl >want
[ -s want ] || complain "no validation to compare with"

launch 2 trained --evaluate --data held_out.txt --init w.safetensors --log again.jsonl && alike again
launch 2 trained --evaluate --data held_out.txt --checkpoint states --resume --log resumed.jsonl && alike resumed
for how in "1 --stages 1" "2 --stages 2" "3 --stages 3" "3 --stages 2 --replicas 2,1" "3 --stages 2 --replicas 1,2"; do
  n=${how%% *} name=infer$(echo "${how#* }" | tr -d ' -')
  # shellcheck disable=SC2086
  "tiny_$model" "$name" --infer --microbatch 2 ${how#* } || continue
  infer "$n" "$name" --data held_out.txt --init w.safetensors --log "$name.jsonl" --trace trace.json && alike "$name"
  [ -e "$name/train" ] && complain "$name has a launcher for training"
  grep -q 'gradients\|moments\|pd_update\|pd_dropout' "$name"/stage*.c && complain "$name holds what only training needs"
done
[ "$model" = gpt ] || exit $failed
build grouped --infer --stages 1 --microbatch 2 "$top/tests/golden/groups.pdm" # without the groups, whose table nobody reads

# ---- what is refused, and how failures are told ----------------------------------------------------------
for option in "--steps 3" "--save x" "--validation held_out.txt" "--checkpoint states" "--seed 3" "--augment flip" --resume \
  --evaluate; do
  # shellcheck disable=SC2086
  says "${option%% *} has no effect in infer: it is an option of train" infer 1 inferstages1 --data held_out.txt --init w.safetensors $option
done
says "--data PATH is missing" infer 1 inferstages1 --init w.safetensors
says "--init FILE is missing" infer 1 inferstages1 --data held_out.txt
says "--steps has no effect with --evaluate" launch 2 trained --evaluate --data held_out.txt --init w.safetensors --steps 2
says "without --resume" launch 2 trained --evaluate --data held_out.txt --checkpoint states
says "holds no complete checkpoint" launch 2 trained --evaluate --data held_out.txt --checkpoint none --resume
says "holds no tensor" infer 2 inferstages2 --data held_out.txt --init "$top/tests/golden/blocks.init.safetensors"
sed 's/"ln_f.weight"/"ln_x.weight"/' w.safetensors >lacks.safetensors # of the last stage
says "holds no tensor 'ln_f.weight'" infer 2 inferstages2 --data held_out.txt --init lacks.safetensors
says "is for training" "$pdc" --infer -S --schedule flush "$top/models/mlp.pdm"
says "has no backward passes and cannot train" "$pdc" -S --schedule forward "$top/models/mlp.pdm"
says "pdc: error: 'forward' does not support recomputation" "$pdc" --infer -S --recompute on "$top/models/mlp.pdm"
if /usr/bin/env python3 -c "import numpy" 2>/dev/null; then
  python3 - "$top/tests/golden" <<'P' || complain "Python and safetensors"
import sys
sys.path.insert(0, sys.argv[1])
import tensors
weights = tensors.load("w.safetensors")
weights["h.1.ln_2.bias"] = weights["h.1.ln_2.bias"] * float("nan")
tensors.save("nan.safetensors", weights)
P
  says "non-finite; first non-finite tensor: parameter 'h.1.ln_2.bias'" infer 1 inferstages1 --data held_out.txt \
    --init nan.safetensors
fi
infer 1 inferstages1 --data held_out.txt --emulate || complain "--emulate without weights"
infer 1 inferstages1 --help | grep -q -- --steps && complain "--help lists what is refused"
exit $failed
