"""Writes the golden files of balance.pdm, from DeepseekV3MoE of Hugging Face's transformers in double:
  balance.x.npy, balance.y.npy     the samples, in the order of sampler.py with seed 1
  balance.init.safetensors         parameters and biases before
  balance.D.want.safetensors       those after UPDATES updates of MICROBATCHES microbatches each
  balance.D.loss                   the losses of the updates
D is the delay in updates of the weights and biases that a batch reads: 0, or 1 as under 2BW. After each batch the biases of
experts with fewer rows than the mean grow by SPEED, those with more shrink. Needs PyTorch and transformers; the files are
committed, so that the tests do not."""
import os
import sys

import numpy
import torch
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "reference"))
import tensors
from sampler import sample

SAMPLES, BATCH, MICROBATCHES, UPDATES, SEED, SPEED = 30, 12, 4, 4, 1, 0.05


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = DeepseekV3Config(hidden_size=12, moe_intermediate_size=6, n_routed_experts=8, num_experts_per_tok=3,
                                  n_group=4, topk_group=2, n_shared_experts=2, routed_scaling_factor=1.5)
        config._experts_implementation = "eager"
        self.moe = DeepseekV3MoE(config)
        self.out = torch.nn.Linear(12, 12, bias=False)
        self.moe.gate.register_forward_hook(self.count)
        self.load = torch.zeros(8)

    def count(self, gate, given, results):
        self.load += torch.bincount(results[2].flatten(), minlength=8)

    def forward(self, x):
        return self.out(self.moe(x))


def draw(model):
    generator = numpy.random.default_rng(7)
    return {name: generator.standard_normal(tuple(value.shape)).astype(numpy.float32) * numpy.float32(0.5)
            for name, value in model.state_dict().items()}


def train(model, data, delay):
    """As many losses as updates."""
    parameters, bias = list(model.parameters()), model.moe.gate.e_score_correction_bias
    velocity = [torch.zeros_like(p) for p in parameters]
    versions, losses = [[p.detach().clone() for p in [*parameters, bias]]], []
    for t in range(UPDATES):
        rows = [sample(SEED, SAMPLES, t * BATCH + i) for i in range(BATCH)]
        for p, w in zip([*parameters, bias], versions[max(t - delay, 0)]):
            p.data.copy_(w)
        model.zero_grad()
        model.load.zero_()
        total = 0
        for part in numpy.split(numpy.array(rows), MICROBATCHES):
            loss = ((model(data[0][part]) - data[1][part]) ** 2).mean() / MICROBATCHES
            loss.backward()
            total += loss.item()
        losses.append(total)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        newest = []
        for i, (p, w) in enumerate(zip(parameters, versions[-1])):
            velocity[i] = 0.9 * velocity[i] + p.grad
            newest.append(w - 0.05 * velocity[i])
        newest.append(versions[-1][-1] + SPEED * torch.sign(model.load.mean() - model.load))
        versions.append(newest)
    for p, w in zip([*parameters, bias], newest):
        p.data.copy_(w)
    return losses


def main():
    generator = numpy.random.default_rng(3)
    x, y = (generator.standard_normal((SAMPLES, 10, 12)).astype(numpy.float32) for _ in range(2))
    numpy.save(os.path.join(HERE, "balance.x.npy"), x)
    numpy.save(os.path.join(HERE, "balance.y.npy"), y)
    data = [torch.from_numpy(a).double() for a in (x, y)]
    state = draw(Model())
    tensors.save(os.path.join(HERE, "balance.init.safetensors"), state)
    for delay in (0, 1):
        model = Model().double()
        model.load_state_dict({k: torch.from_numpy(v).double() for k, v in state.items()})
        losses = train(model, data, delay)
        path = os.path.join(HERE, f"balance.{delay}")
        tensors.save(path + ".want.safetensors", {k: v.detach() for k, v in model.state_dict().items()})
        with open(path + ".loss", "w") as file:
            file.writelines(f"{loss:.9g}\n" for loss in losses)


if __name__ == "__main__":
    main()
