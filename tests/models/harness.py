"""What the scripts of this folder share. MODEL.py trains its model as plain PyTorch in double precision, from the
weights that pdc's program starts from, and writes beside it
  MODEL.gradients    a line for each parameter: its name, and of W - 2^20 gradient of the first batch's loss the
                     norm and the product with cos(0), cos(1), ...; of batch norm's statistics as they are
                     after that batch
  MODEL.losses       the losses of UPDATES updates under 2bw
Usage: MODEL.py PDC. Needs PyTorch; the files are committed, so that the tests do not."""
import collections
import os
import subprocess
import sys
import tempfile

import numpy
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("golden", "reference"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import sampler
import tensors
import training

UPDATES, SEED = 10, 1
RATE = 2.0 ** 20
MASK = (1 << 32) - 1


def path(name):
    return os.path.join(HERE, name)


def philox(counter, key):
    """Philox 4x32-10: four words of 32 bits."""
    c, k = list(counter), [key & MASK, key >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [b >> 32 ^ c[1] ^ k[0], b & MASK, a >> 32 ^ c[3] ^ k[1], a & MASK]
        k = [k[0] + 0x9E3779B9 & MASK, k[1] + 0xBB67AE85 & MASK]
    return c


def mix(seed, scope):
    """pd_mix of runtime/kernels/pd_math.h: a key of a seed and a scope."""
    return sampler.mix((sampler.mix(seed) + scope - 0x9E3779B97F4A7C15) & sampler.MASK)


def sample(n, s):
    """The sample that comes s-th in a run, among n."""
    return sampler.sample(SEED, n, s)


def initial(pdc, model, options):
    """The weights that the program of a model starts from, in double."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([pdc, "-n", "1", "-o", folder, *options, path(f"../../models/{model}.pdm")], check=True)
        file = os.path.join(folder, "initial.safetensors")
        subprocess.run([os.path.join(folder, "train"), "--steps", "0", "--seed", str(SEED), "--save", file], check=True)
        return {name: torch.from_numpy(w).double() for name, w in tensors.load(file).items()}


def options_of(model):
    """Of pdc, from the attributes that the file MODEL.options lists."""
    with open(path(model + ".options")) as file:
        return [word for line in file for word in ("-D", line.strip())]


def is_statistic(name):
    """Batch norm's, which training does not read."""
    return name.endswith((".running_mean", ".running_var"))


def digest(w):
    flat = w.double().flatten()
    return flat.norm().item(), (flat * torch.arange(len(flat)).double().cos()).sum().item()


def write(model, loss_of, batch_of, optimizer_of, rate, clip_norm, start=dict):
    """loss_of(weights, batch), batch_of(t), start(pdc's initial weights)."""
    weights = start(initial(sys.argv[1], model, options_of(model)))

    def gradients(weights, t):
        """The loss, the gradients and the statistics after it; loss_of keeps these in place."""
        leaves = {name: w.clone().detach().requires_grad_(not is_statistic(name)) for name, w in weights.items()}
        loss = loss_of(leaves, batch_of(t))
        loss.backward()
        return loss.item(), {name: torch.zeros_like(w) if is_statistic(name) else w.grad
                             for name, w in leaves.items()}, leaves

    with open(path(model + ".gradients"), "w") as file:
        _, first, after = gradients(weights, 0)
        for name, g in first.items():
            w = after[name] if is_statistic(name) else weights[name] - RATE * g
            file.write("%s %.9g %.9g\n" % (name, *digest(w)))
    optimizer, versions = optimizer_of(weights), collections.deque([weights], 2)
    with open(path(model + ".losses"), "w") as file:
        for t in range(UPDATES):
            loss, g, _ = gradients(versions[0], t)
            training.clip(g, clip_norm)
            versions.append(optimizer.step(versions[-1], g, rate))
            file.write(f"{loss:.9g}\n")
