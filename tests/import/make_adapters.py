"""Writes adapters of folders/ and tasks/, and what PEFT computes by them: for each case below adapters/CASE/ with options, those of
pdc --lora, base, the folder, start/, a random adapter, losses, one line an update of AdamW over all samples,
tuned.safetensors, the adapter after these updates, logits.npy, the logits of the model with it, and greedy, the tokens
that a model of language continues PROMPT with. Needs torch, transformers and peft:
    python3 make_adapters.py [CASE...]
"""
import os
import shutil
import sys

import numpy as np
import peft
import safetensors.torch
import torch
import transformers as hf

import make_tasks

UPDATES, RATE, DECAY, PROMPT = 10, 0.02, 0.1, [7, 3, 52, 11, 30]
here = os.path.dirname(os.path.abspath(__file__))
cases = {  # folder, r, alpha, targets, modules that are trained whole
    "llama": ("folders/llama", 3, 12, ["q_proj", "v_proj", "down_proj"], None),
    "gpt2": ("folders/gpt2", 2, 2, ["c_attn", "mlp.c_proj"], None),
    "phi3": ("folders/phi3", 4, 2, ["qkv_proj"], None),
    "mistral": ("folders/mistral", 2, 3, ["k_proj", "o_proj"], None),
    "qwen2": ("folders/qwen2", 2, 4, ["q_proj", "up_proj"], None),
    "qwen3": ("folders/qwen3", 3, 3, ["v_proj", "gate_proj"], None),
    "olmo2": ("folders/olmo2", 2, 5, ["q_proj", "k_proj"], None),
    "gemma": ("folders/gemma", 2, 2, ["o_proj", "down_proj"], None),
    "gemma2": ("folders/gemma2", 2, 3, ["q_proj", "v_proj"], None),
    "gemma3": ("folders/gemma3", 2, 4, ["k_proj", "up_proj"], None),
    "gpt_neox": ("folders/gpt_neox", 2, 3, ["query_key_value", "dense_h_to_4h"], None),
    "mixtral": ("folders/mixtral", 2, 4, ["q_proj", "v_proj"], None),
    "qwen3_moe": ("folders/qwen3_moe", 3, 2, ["k_proj", "o_proj"], None),
    "whisper": ("tasks/whisper", 2, 3, ["q_proj", "v_proj", "fc1"], None),
    "bert": ("tasks/bert_classes", 3, 6, ["query", "value", "intermediate.dense"], ["classifier"]),
    "roberta": ("tasks/roberta_masked", 2, 4, ["key", "output.dense"], None),
    "vit": ("tasks/vit_classes", 2, 3, ["query", "output.dense"], ["classifier"]),
    "t5": ("tasks/t5_gated", 3, 6, ["q", "v", "wi_0", "wo"], None),
}
# Names of transformers 5 that differ from those of files, which PEFT with transformers 4 writes.
VIT = {"query": "q_proj", "output.dense": "mlp.fc2|o_proj"}
RENAMED = (("vit.layers.", "vit.encoder.layer."), (".attention.q_proj.", ".attention.attention.query."),
           (".attention.o_proj.", ".attention.output.dense."), (".mlp.fc2.", ".output.dense."))


def in_files(name, case):
    for new, old in RENAMED if case == "vit" else ():
        name = name.replace(new, old)
    return name


def rename_file(path, case):
    tensors = safetensors.torch.load_file(path)
    safetensors.torch.save_file({in_files(k, case): v for k, v in tensors.items()}, path, metadata={"format": "pt"})


def loaded(folder):
    """The model, and its arguments with labels."""
    kind, name = folder.split("/")
    if kind == "tasks":
        model = make_tasks.cases[name][1].from_pretrained(os.path.join(here, folder), attn_implementation="eager")
        return model, make_tasks.given_of(name)
    model = hf.AutoModelForCausalLM.from_pretrained(os.path.join(here, folder), attn_implementation="eager")
    return model, {"input_ids": torch.tensor(np.load(os.path.join(here, folder, "tokens.npy"))).long()}


def loss_of(model, given, folder):
    if "labels" in given:
        return model(**given).loss
    logits = model(**given).logits
    following = torch.tensor(np.load(os.path.join(here, folder, "next.npy"))).long()
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), following.reshape(-1))


def make(name):
    folder, r, alpha, targets, whole = cases[name]
    torch.manual_seed(1)
    to = os.path.join(here, "adapters", name)
    shutil.rmtree(to, ignore_errors=True)
    model, given = loaded(folder)
    named = [new for t in targets for new in (VIT[t] if name == "vit" else t).split("|")]
    model = peft.get_peft_model(model, peft.LoraConfig(r=r, lora_alpha=alpha, target_modules=named, modules_to_save=whole,
                                                       task_type=None if "labels" in given else "CAUSAL_LM"))
    model.eval()
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert trained and all("lora_" in n or "modules_to_save" in n for n in trained)
    for n, p in trained.items():
        if "lora_" in n:
            torch.nn.init.normal_(p, 0.0, 0.2)
    model.save_pretrained(os.path.join(to, "start"))
    os.remove(os.path.join(to, "start", "README.md"))
    config = os.path.join(to, "start", "adapter_config.json")
    with open(config) as file:
        text = file.read().replace(os.path.join(here, folder), folder.split("/")[1])
    with open(config, "w") as file:
        file.write(text)
    rename_file(os.path.join(to, "start", "adapter_model.safetensors"), name)
    vectors = [p for p in trained.values() if p.dim() == 1]  # without decay, as in pdc and in transformers' Trainer
    groups = [{"params": [p for p in trained.values() if p.dim() > 1]}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, weight_decay=DECAY)
    with open(os.path.join(to, "losses"), "w") as out:
        for _ in range(UPDATES):
            loss = loss_of(model, given, folder)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            out.write(f"{loss.item():.9g}\n")
    tuned = os.path.join(to, "tuned")
    model.save_pretrained(tuned)
    rename_file(os.path.join(tuned, "adapter_model.safetensors"), name)
    os.rename(os.path.join(tuned, "adapter_model.safetensors"), os.path.join(to, "tuned.safetensors"))
    shutil.rmtree(tuned)
    with torch.no_grad():
        np.save(os.path.join(to, "logits.npy"), model(**given).logits.numpy().astype(np.float32))
        prompt = list(PROMPT)
        while "labels" not in given and len(prompt) < given["input_ids"].shape[1]:
            prompt.append(int(model(torch.tensor([prompt])).logits[0, -1].argmax()))
    if len(prompt) > len(PROMPT):
        with open(os.path.join(to, "greedy"), "w") as out:
            out.write(",".join(str(t) for t in prompt[len(PROMPT):]) + "\n")
    with open(os.path.join(to, "base"), "w") as out:
        out.write(folder + "\n")
    with open(os.path.join(to, "options"), "w") as out:
        saved = f",modules_to_save={'|'.join(whole)}" if whole else ""
        out.write(f"r={r},alpha={alpha},targets={'|'.join(targets)}{saved}\n")


torch.set_num_threads(1)
for case in sys.argv[1:] or cases:
    make(case)
