"""Writes lr_goldens.h, beside this: rates of updates by PyTorch's schedulers, and by transformers' where PyTorch has
none. Needs both; the file is committed, so that the tests do not."""
import os

import torch
from torch.optim import lr_scheduler
from transformers import get_inverse_sqrt_schedule

LR, UPDATES = 0.1, 40
SCHEDULES = (
    ("step_lr", lambda o: lr_scheduler.StepLR(o, 7, gamma=0.3)),
    ("restarts_same", lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 6, eta_min=0.01)),
    ("restarts_longer", lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5, T_mult=2)),
    ("inverse_sqrt", lambda o: get_inverse_sqrt_schedule(o, 8)),
)


def rates(make):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    schedule, taken = make(optimizer), []
    for _ in range(UPDATES):
        taken.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return taken


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lr_goldens.h"), "w") as file:
    file.write("/* Written by make_lr_schedules.py. */\n/* clang-format off */\n")
    file.write(f"enum {{ LR_UPDATES = {UPDATES} }};\n")
    for name, make in SCHEDULES:
        file.write(f"static const double {name}[LR_UPDATES] = {{\n")
        taken = [repr(float(rate)) for rate in rates(make)]
        for i in range(0, UPDATES, 5):
            file.write("  " + ", ".join(taken[i:i + 5]) + ",\n")
        file.write("};\n")
    file.write("/* clang-format on */\n")
