"""Writes files of torch.save for the test pytorch, in the folder pytorch/, and seeds for tests/fuzz:
    python3 make_pytorch.py        (torch 2, safetensors)
llama.bin: the state dict of folders/llama; half.pt: its tensors in f16, bf16 and f64, as nn.Parameter, one inside a larger
storage and two of one storage; nano.pt: a checkpoint of a training in nanoGPT's form with the tensors of folders/gpt2;
view.pt, unsafe.pt, old.pt and packed.pt: files that are refused."""
import collections
import os
import pickle
import shutil
import zipfile

import torch
from safetensors.torch import load_file

here = os.path.dirname(os.path.abspath(__file__))
to = os.path.join(here, "pytorch")
os.makedirs(to, exist_ok=True)
path = lambda name: os.path.join(to, name)

llama = load_file(os.path.join(here, "folders", "llama", "model.safetensors"))
torch.save(collections.OrderedDict(llama), path("llama.bin"))

gpt2 = load_file(os.path.join(here, "folders", "gpt2", "model.safetensors"))
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model(torch.ones(2)).sum().backward()
optimizer.step()
state = {"_orig_mod." + name: x for name, x in gpt2.items()}
torch.save({"model": state, "optimizer": optimizer.state_dict(), "model_args": {"n_layer": 2, "bias": True, "dropout": 0.0},
            "iter_num": 7, "best_val_loss": torch.tensor(2.5), "config": {"init_from": "scratch", "betas": (0.9, 0.95)}},
           path("nano.pt"))

torch.manual_seed(1)
x = torch.randn(4, 6)
tensors = {"a": x.half(), "b": x.bfloat16(), "c": x.double(), "d": torch.nn.Parameter(x), "e": x[1:3], "f": x.view(24),
           "g": torch.tensor(3.5), "h": torch.zeros(0, 5)}
torch.save({"state_dict": tensors, "epoch": 3, "names": ["x", "y"], "big": 2**70, "none": None, "device": torch.device("cpu"),
            "size": x.size(), "steps": torch.arange(3)}, path("half.pt"))


class Unsafe:
    def __reduce__(self):
        return os.system, ("touch executed",)


torch.save({"model.embed_tokens.weight": torch.zeros(2, 2), "more": Unsafe()}, path("unsafe.pt"))
torch.save({"model.embed_tokens.weight": x.T}, path("view.pt"))
torch.save({"model.embed_tokens.weight": torch.zeros(2, 2)}, path("old.pt"), _use_new_zipfile_serialization=False)
torch.save({"model.embed_tokens.weight": torch.zeros(16, 16)}, path("whole.pt"))
with zipfile.ZipFile(path("whole.pt")) as source, zipfile.ZipFile(path("packed.pt"), "w", zipfile.ZIP_DEFLATED) as packed:
    for name in source.namelist():
        packed.writestr(name, source.read(name))
os.remove(path("whole.pt"))

seeds = os.path.join(here, "..", "fuzz", "corpus", "pytorch")
os.makedirs(seeds, exist_ok=True)
shutil.copy(path("half.pt"), os.path.join(seeds, "half"))
shutil.copy(path("unsafe.pt"), os.path.join(seeds, "unsafe"))
for protocol in (2, 4):
    with open(os.path.join(seeds, f"pickle{protocol}"), "wb") as out:
        pickle.dump({"model": collections.OrderedDict(a=(1, -2, 300, 70000, 2**40), b=[None, True, 1.5, "é"]), "c": b"x"}, out,
                    protocol=protocol)
