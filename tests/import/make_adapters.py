"""Writes adapters of folders/, and what PEFT computes by them: for each case below adapters/CASE/ with options, those of
pdc --lora, base, the name of the folder, start/, a random adapter, losses, one line an update of AdamW over all samples,
tuned.safetensors, the adapter after these updates, logits.npy, the logits of the model with it, and greedy, the tokens
that it continues PROMPT with. Needs torch, transformers and peft:
    python3 make_adapters.py [CASE...]
"""
import os
import shutil
import sys

import numpy as np
import peft
import torch
import transformers as hf

UPDATES, RATE, DECAY, PROMPT = 10, 0.02, 0.1, [7, 3, 52, 11, 30]
here = os.path.dirname(os.path.abspath(__file__))
cases = {  # folder, r, alpha, targets
    "llama": ("llama", 3, 12, ["q_proj", "v_proj", "down_proj"]),
    "gpt2": ("gpt2", 2, 2, ["c_attn", "mlp.c_proj"]),
    "phi3": ("phi3", 4, 2, ["qkv_proj"]),
}


def make(name):
    base, r, alpha, targets = cases[name]
    torch.manual_seed(1)
    folder, to = os.path.join(here, "folders", base), os.path.join(here, "adapters", name)
    shutil.rmtree(to, ignore_errors=True)
    model = hf.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    model = peft.get_peft_model(model, peft.LoraConfig(r=r, lora_alpha=alpha, target_modules=targets,
                                                       task_type="CAUSAL_LM"))
    adapters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert adapters and all("lora_" in n for n in adapters)
    for p in adapters.values():
        torch.nn.init.normal_(p, 0.0, 0.2)
    model.save_pretrained(os.path.join(to, "start"))
    os.remove(os.path.join(to, "start", "README.md"))
    config = os.path.join(to, "start", "adapter_config.json")
    with open(config) as file:
        text = file.read().replace(folder, base)
    with open(config, "w") as file:
        file.write(text)
    tokens, targets_ = (torch.tensor(np.load(os.path.join(folder, f))).long() for f in ("tokens.npy", "next.npy"))
    optimizer = torch.optim.AdamW(adapters.values(), lr=RATE, weight_decay=DECAY)
    with open(os.path.join(to, "losses"), "w") as out:
        for _ in range(UPDATES):
            logits = model(tokens).logits
            loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets_.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            out.write(f"{loss.item():.9g}\n")
    tuned = os.path.join(to, "tuned")
    model.save_pretrained(tuned)
    os.rename(os.path.join(tuned, "adapter_model.safetensors"), os.path.join(to, "tuned.safetensors"))
    shutil.rmtree(tuned)
    with torch.no_grad():
        np.save(os.path.join(to, "logits.npy"), model.eval()(tokens).logits.numpy().astype(np.float32))
        prompt = list(PROMPT)
        while len(prompt) < tokens.shape[1]:
            prompt.append(int(model(torch.tensor([prompt])).logits[0, -1].argmax()))
    with open(os.path.join(to, "greedy"), "w") as out:
        out.write(",".join(str(t) for t in prompt[len(PROMPT):]) + "\n")
    with open(os.path.join(to, "base"), "w") as out:
        out.write(base + "\n")
    with open(os.path.join(to, "options"), "w") as out:
        out.write(f"r={r},alpha={alpha},targets={'|'.join(targets)}\n")


torch.set_num_threads(1)
for case in sys.argv[1:] or cases:
    make(case)
