"""Writes shapes.loss and shapes.held.loss: losses of ten updates of shapes.pdm on a folder of images, by PyTorch and torchvision.

  python make_image_losses.py        (torch, torchvision, Pillow; in this folder)

torchvision's ImageFolder reads the images of ../docs/draw_shapes.py and frames them by Resize, CenterCrop and Normalize. Samples come in
the order of ../reference/sampler.py. Losses of updates are those of batches of 32 in f32; the other file has the mean over the folder `held` after them."""
import os
import subprocess
import sys
import tempfile

import torch
import torchvision
import torchvision.transforms as T

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, here + "/../reference"]
import sampler  # noqa: E402
import shapes_init  # noqa: E402

SIDE, BATCH, UPDATES, SEED = 24, 32, 10, 7

with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.executable, here + "/../docs/draw_shapes.py"], cwd=folder, check=True)
    frame = T.Compose([T.Resize(round(SIDE / 0.875)), T.CenterCrop(SIDE), T.ToTensor(),
                       T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    train, held = ([*torchvision.datasets.ImageFolder(f"{folder}/shapes/{part}", frame)] for part in ("train", "held"))

weights = {name: torch.frombuffer(bytearray(raw), dtype=torch.float32).reshape(shapes_init.SHAPES[name]).clone().requires_grad_()
           for name, raw in shapes_init.values().items()}


def loss_of(samples):
    x, y = torch.stack([image for image, _ in samples]), torch.tensor([label for _, label in samples])
    for i in "12":
        x = torch.nn.functional.conv2d(x, weights[f"conv{i}.weight"], weights[f"conv{i}.bias"], padding=2 if i == "1" else 0)
        x = torch.nn.functional.max_pool2d(torch.relu(x), 2)
    return torch.nn.functional.cross_entropy(torch.nn.functional.linear(x.flatten(1), weights["head.weight"], weights["head.bias"]), y)


decayed, others = ([p for p in weights.values() if (p.ndim > 1) == matrix] for matrix in (True, False))
optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0}], lr=3e-3, weight_decay=0.01)
with open(here + "/shapes.loss", "w") as out:
    for t in range(UPDATES):
        loss = loss_of([train[sampler.sample(SEED, len(train), t * BATCH + i)] for i in range(BATCH)])
        out.write(f"{loss.item():.9g}\n")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
with torch.no_grad(), open(here + "/shapes.held.loss", "w") as out:
    out.write(f"{loss_of(held).item():.9g}\n")
