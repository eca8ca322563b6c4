"""Loads an adapter that `train --save DIR/` wrote with PEFT:  adapts.py BASE ADAPTER LOGITS
No key is missing or unexpected, and the logits are those of the file, within 5e-5 of the largest. Needs torch,
transformers and peft."""
import os
import sys

import numpy as np
import peft
import torch
import transformers as hf

import make_tasks

base, adapter, logits = sys.argv[1:]
if os.path.isdir(os.path.join(base, "data")):
    name = os.path.basename(base)
    model, given = make_tasks.cases[name][1].from_pretrained(base, attn_implementation="eager"), make_tasks.given_of(name)
else:
    model = hf.AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
    given = {"input_ids": torch.tensor(np.load(os.path.join(base, "tokens.npy"))).long()}
model = peft.PeftModel.from_pretrained(model, adapter)
state = peft.get_peft_model_state_dict(model)
saved = peft.utils.load_peft_weights(adapter)
if set(state) != set(saved):
    sys.exit(f"{adapter}: other keys: {sorted(set(state) ^ set(saved))}")
wanted = np.load(logits)
with torch.no_grad():
    got = model.eval()(**given).logits.numpy()
worst = np.abs(got - wanted).max() / np.abs(wanted).max()
print(f"{adapter}: worst {worst:.2e}")
sys.exit(int(worst > 5e-5))
