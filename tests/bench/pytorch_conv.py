"""The other side of `convnets`: training steps of VGG-16, ResNet-50 or LeNet in PyTorch, one thread.

Reads lines from its input, each a number of updates to make; answers with the milliseconds of every update,
by a clock of Python's module time; COMPILED=yes compiles the model.
VGG-16 and ResNet-50 are torchvision's, in the memory format that is faster for each, and learn by SGD with momentum; LeNet is
models/lenet.pdm and learns by AdamW."""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def vgg16(classes):
    layers, channels = [], 3
    for width in (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512, "pool"):
        if width == "pool":
            layers.append(nn.MaxPool2d(2, 2))
        else:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
    layers += [nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5),
               nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(4096, classes)]
    return nn.Sequential(*layers)


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample = nn.Identity()
        if stride != 1 or channels != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(channels, 4 * width, 1, stride, bias=False),
                                            nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x), inplace=True)


def resnet50(classes):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            layers.append(Bottleneck(channels, width, stride if i == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def lenet(classes):
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5),
                         nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(inplace=True),
                         nn.Linear(120, 84), nn.ReLU(inplace=True), nn.Linear(84, classes))


def main():
    name, batch, size, classes = sys.argv[1], *map(int, sys.argv[2:5])
    clock = getattr(time, sys.argv[5])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    make, form, channels = {"vgg16": (vgg16, torch.contiguous_format, 3), "resnet50": (resnet50, torch.channels_last, 3),
                            "lenet": (lenet, torch.contiguous_format, 1)}[name]
    model = make(classes).to(memory_format=form)
    run = torch.compile(model) if os.environ.get("COMPILED") else model
    if name == "lenet":
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, foreach=True)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=True)
    images = torch.randn(4, batch, channels, size, size)
    labels = torch.randint(0, classes, (4, batch))
    step = 0
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = clock()
            x = images[step % 4].contiguous(memory_format=form)
            loss = F.cross_entropy(run(x), labels[step % 4])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            loss.item()
            times.append(1000 * (clock() - start))
            step += 1
        print(" ".join(f"{ms:.3f}" for ms in times), flush=True)


if __name__ == "__main__":
    main()
