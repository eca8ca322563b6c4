"""PyTorch's side of tests/bench/generate: GPT-2 of Hugging Face's transformers, with its cache, greedily.
    pytorch_generate.py make WEIGHTS        writes random weights, under the names that models/gpt2.pdm has
    pytorch_generate.py run WEIGHTS TOKENS  for each line of standard input prints the tokens a second of one sample"""
import sys
import time

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config())
if sys.argv[1] == "make":
    save_file({k.removeprefix("transformer."): v.detach().contiguous() for k, v in model.named_parameters()}, sys.argv[2])
    sys.exit()
model.load_state_dict({"transformer." + k: v for k, v in load_file(sys.argv[2]).items()}, strict=False)
model.eval()
tokens = int(sys.argv[3])
prompt = torch.tensor([[1, 2, 3, 4]])
for _ in sys.stdin:
    start = time.monotonic()
    with torch.no_grad():
        made = model.generate(prompt, do_sample=False, min_new_tokens=tokens, max_new_tokens=tokens, pad_token_id=0)
    print((made.shape[1] - prompt.shape[1]) / (time.monotonic() - start), flush=True)
