"""Writes the golden files of inference.pdm, from PyTorch in double and in eval mode:
  inference.image.npy, inference.label.npy    the samples
  inference.init.safetensors                  parameters and running averages
  inference.NAME.want.npy                     what each output is for all samples
  inference.loss                              the mean loss, then the accuracy
Needs PyTorch; the files are committed, so that the tests do not."""
import os
import sys

import numpy
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import tensors

SAMPLES = 23


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.bn = torch.nn.BatchNorm2d(4)
        self.hidden = torch.nn.Linear(36, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, image):
        drop = torch.nn.functional.dropout
        features = drop(torch.relu(self.bn(self.conv(image))), 0.5, self.training)
        x = drop(torch.nn.functional.max_pool2d(features, 2).flatten(1), 0.3, self.training)
        logits = self.head(torch.tanh(self.norm(self.hidden(x))))
        return {"logits": logits, "features": features, "probabilities": logits.softmax(1), "flipped": -image}


def main():
    generator = numpy.random.default_rng(11)
    image = generator.standard_normal((SAMPLES, 3, 6, 6)).astype(numpy.float32)
    label = generator.integers(0, 5, (SAMPLES, 1)).astype(numpy.int32)
    numpy.save(os.path.join(HERE, "inference.image.npy"), image)
    numpy.save(os.path.join(HERE, "inference.label.npy"), label)
    torch.manual_seed(0)
    state = {}
    for name, value in Model().state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        noise = generator.standard_normal(tuple(value.shape)).astype(numpy.float32)
        state[name] = abs(noise) + numpy.float32(0.5) if name.endswith("running_var") else noise
    tensors.save(os.path.join(HERE, "inference.init.safetensors"), state)
    model = Model().double().eval()
    model.load_state_dict({k: torch.from_numpy(v).double() for k, v in state.items()}, strict=False)
    with torch.no_grad():
        outputs = model(torch.from_numpy(image).double())
    for name, value in outputs.items():
        numpy.save(os.path.join(HERE, f"inference.{name}.want.npy"), value.numpy().astype(numpy.float32))
    logits, labels = outputs["logits"], torch.from_numpy(label[:, 0]).long()
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    accuracy = (logits.argmax(1) == labels).double().mean().item()
    with open(os.path.join(HERE, "inference.loss"), "w") as file:
        file.write(f"{loss:.9g} {accuracy:.9g}\n")


if __name__ == "__main__":
    main()
