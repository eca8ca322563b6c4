"""Loads a folder that `train --save DIR/` wrote with transformers:  loads.py DIR TOKENS LOGITS [TYPE]
No key is missing or unexpected, the weights have the type TYPE (float32), and the logits are those of the file, within
1e-5 of the largest. Needs torch and transformers."""
import sys

import numpy as np
import torch
import transformers as hf

folder, tokens, logits = sys.argv[1:4]
model, info = hf.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
for what, keys in info.items():
    if keys:
        sys.exit(f"{folder}: {what}: {keys}")
if str(model.dtype) != "torch." + (sys.argv[4] if len(sys.argv) > 4 else "float32"):
    sys.exit(f"{folder}: weights of {model.dtype}")
wanted = np.load(logits)
with torch.no_grad():
    got = model.float().eval()(torch.tensor(np.load(tokens)).long()).logits.numpy()
worst = np.abs(got - wanted).max() / np.abs(wanted).max()
print(f"{folder}: {len(wanted)} samples, worst {worst:.2e}")
sys.exit(int(worst > 1e-5))
