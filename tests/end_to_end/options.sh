# Options of a run that must change no result, or exactly one:  options.sh PDC
pdc=$1
. "$(dirname "$0")/common.sh"
level=-O0
tiny_gpt two -n 2 --stages 2 --microbatch 2 --schedule 2bw || exit 1
train_tiny 2 two || exit 1
keep() { for end in jsonl figures safetensors; do mv "two.$end" "$1.$end"; done; }
keep usual

train_tiny 2 two && keep again && same usual again
OMP_NUM_THREADS=2 train_tiny 2 two && keep threads && same usual threads
train_tiny 2 two --seed 6 && keep seed
cmp -s usual.figures seed.figures && complain "the seed changes nothing"

# Validation disturbs no training.
launch 2 two --data train.txt --steps 12 --seed 5 --log plain.jsonl --save plain.safetensors ||
  complain "plain run"
figures plain.jsonl >plain.figures
grep '"loss"' usual.figures | cmp - plain.figures || complain "validation changes losses"
cmp usual.safetensors plain.safetensors || complain "validation changes weights"
[ "$(grep -c validation_loss usual.figures)" = 3 ] || complain "not three validations (after 5, 10, 12)"

# Weights: what is saved is what was read, on any plan; fresh ones depend on the seed alone.
tiny_gpt three -n 3 --stages 3 --microbatch 1 --schedule flush || exit 1
launch 3 three --steps 0 --init usual.safetensors --save copy.safetensors || complain "--steps 0 --init"
cmp usual.safetensors copy.safetensors || complain "weights changed by reading and writing them"
launch 3 three --steps 0 --seed 5 --save fresh3.safetensors || complain "--steps 0"
launch 2 two --steps 0 --seed 5 --save fresh2.safetensors || complain "--steps 0"
cmp fresh3.safetensors fresh2.safetensors || complain "fresh weights depend on the plan"

tiny_gpt one --microbatch 4 || exit 1
# With no update to do, weights are judged as they are: those of 12 updates as after the twelfth. --run makes its parents.
for n in 1 2 3; do
  dir=$(echo one two three | cut -d' ' -f$n)
  launch $n "$dir" --steps 0 --init usual.safetensors --validation validation.txt --run runs/of/$n ||
    complain "--steps 0 --validation on $n"
  grep -o '"validation_loss":[^,]*' runs/of/$n/log.jsonl >judged.$n
  [ "$(cat judged.$n)" = "$(grep -o '"validation_loss":[^,]*' usual.figures | tail -n 1)" ] ||
    complain "weights are judged otherwise on $n than after the update"
  grep -q '"step":0,"validation_loss"' runs/of/$n/log.jsonl || complain "no validation of step 0 on $n"
done
launch 2 two --data train.txt --validation validation.txt --validate-every 5 --steps 12 --seed 5 \
  --init fresh3.safetensors --log init.jsonl --save init.safetensors || complain "--init"
figures init.jsonl >init.figures
same usual init

# A checkpoint's shards hold weights in memory's order, a file those of GPT-2's linear layers transposed: --init knows.
launch 2 two --data train.txt --steps 12 --seed 5 --checkpoint state --save twelfth.safetensors || complain "--checkpoint"
launch 3 three --steps 0 --init state/step-12 --save shards.safetensors || complain "--init of a checkpoint's step"
cmp twelfth.safetensors shards.safetensors || complain "weights of a checkpoint's shards differ from those saved"

# Python reads what was saved, and what Python wrote under Hugging Face's names is read.
if /usr/bin/env python3 -c "import numpy" 2>/dev/null; then
  python3 - "$top/tests/golden" <<'P' || complain "Python and safetensors"
import sys
sys.path.insert(0, sys.argv[1])
import tensors
weights = tensors.load("usual.safetensors")
assert weights["h.0.attn.c_attn.weight"].shape == (32, 96) and weights["wte.weight"].shape == (128, 32)
assert len(weights) == 2 + 2 * 12 + 2, sorted(weights)
tensors.save("hf.safetensors", {"transformer." + name: array for name, array in reversed(weights.items())})
P
  launch 2 two --steps 0 --init hf.safetensors --save back.safetensors ||
    complain "--init of Hugging Face's names"
  cmp usual.safetensors back.safetensors || complain "weights differ under Hugging Face's names"

  # A Llama as Hugging Face has it: in files that an index names, its layers' names in `model`; and one with another head.
  tiny_llama llama -n 2 --stages 2 --microbatch 2 || exit 1
  launch 2 llama --steps 0 --save llama.safetensors || complain "a Llama's weights"
  python3 - "$top/tests/golden" <<'P' || complain "a Llama's files"
import json, os, sys
sys.path.insert(0, sys.argv[1])
import tensors
weights = {name if name.startswith("lm_head") else "model." + name: w for name, w in tensors.load("llama.safetensors").items()}
names = sorted(weights)
files = {name: f"model-{i % 2 + 1}-of-2.safetensors" for i, name in enumerate(names)}
os.mkdir("hub")
for file in set(files.values()):
    tensors.save("hub/" + file, {name: weights[name] for name in names if files[name] == file})
json.dump({"metadata": {}, "weight_map": files}, open("hub/model.safetensors.index.json", "w"))
tensors.save("head.safetensors", {**weights, "lm_head.weight": weights["lm_head.weight"][:5]})
P
  launch 2 llama --steps 0 --seed 9 --init hub --rename 'model.*=*' --save back.safetensors || complain "--init of a Llama's files"
  cmp llama.safetensors back.safetensors || complain "a Llama's weights differ under Hugging Face's names"
  launch 2 llama --steps 0 --init head.safetensors --rename 'model.*=*' --init-partial lm_head --save back.safetensors \
    2>err || complain "--init-partial"
  cmp llama.safetensors back.safetensors || complain "a head that starts fresh is not that of the seed"
  grep -qF "1 parameter starts fresh: 'lm_head.weight' (of shape [5, 32] in the file)" err || complain "--init-partial: $(cat err)"
fi
exit $failed
