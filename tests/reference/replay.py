"""Checks the golden runs by other means than those that wrote them: executes pipelines. Stages do their forward
and backward passes one microbatch at a time, in the order in which each schedule has them; a forward pass keeps
the weights it saw for its backward pass; an update makes a new version, and which one a microbatch sees follows
from what is there when it comes, not from a formula. A pass waits until what it needs is there.

Where stages update on their own (`pipedream`), a microbatch sees a stage's newest version on its arrival. Else an
update is of all stages, when the last of them is done with the batch, and a batch keeps to the version that was
newest when its first microbatch entered the pipeline. Needs PyTorch."""
import os
import sys

import make_reference
import tensors
import training


class Group:
    """Stages that update together: their versions of the weights, and the gradients of batches not yet whole."""

    def __init__(self, model, weights, passes):
        self.model, self.versions, self.passes = model, [weights], passes
        self.optimizer = model.optimizer_of(weights)
        self.sums, self.left = {}, {}

    def add(self, t, gradients):
        """A backward pass of batch t is done; after the last of `passes` comes the update."""
        sums = self.sums.setdefault(t, {})
        for name, g in gradients.items():
            sums[name] = sums[name] + g if name in sums else g
        self.left[t] = self.left.get(t, self.passes) - 1
        if self.left[t] == 0:
            training.clip(sums, self.model.clip_norm)
            self.versions.append(self.optimizer.step(self.versions[-1], sums, self.model.rate_of(t)))


class Stage:
    def __init__(self, pieces, names, group):
        self.pieces, self.names, self.group, self.kept = pieces, names, group, {}

    def forward(self, k, version, received, x, y):
        weights = {name: self.group.versions[version][name].detach().requires_grad_() for name in self.names}
        h = received = None if received is None else received.detach().requires_grad_()
        for piece in self.pieces:
            h = piece(weights, h, x, y)
        self.kept[k] = weights, received, h
        return h

    def backward(self, k, t, share, gradient):
        """`gradient` of what forward gave; at the last stage None: the loss counts `share` of the batch's."""
        weights, received, h = self.kept.pop(k)
        (h * share if gradient is None else h).backward(gradient)
        self.group.add(t, {name: w.grad for name, w in weights.items()})
        return None if received is None else received.grad


def passes(first, last, in_flight):
    """Microbatches first..last: a forward pass whenever fewer than in_flight are, else a backward pass."""
    f = b = first
    while b <= last:
        if f <= last and f - b < in_flight:
            yield "forward", f
            f += 1
        else:
            yield "backward", b
            b += 1


def order(schedule, stage, d, m, updates):
    if schedule in ("2bw", "pipedream", "vertical_sync"):
        yield from passes(1, m * updates, d - stage)
        return
    in_flight = {"sequential": 1, "gpipe": m, "flush": d - stage}[schedule]
    for t in range(updates):
        yield from passes(t * m + 1, (t + 1) * m, in_flight)


class Pipeline:
    def __init__(self, name, schedule, d, batch, microbatch):
        model, parts = make_reference.MODELS[name], make_reference.stages(name, d)
        weights = make_reference.start(name)
        self.d, self.m, self.microbatch = d, batch // microbatch, microbatch
        self.batch_of, self.alone = make_reference.batches(batch), schedule == "pipedream"
        if self.alone:
            groups = [Group(model, {key: weights[key] for key in names}, self.m) for _, names in parts]
        else:
            groups = [Group(model, weights, self.m * d)] * d
        self.stages = [Stage(pieces, names, group) for (pieces, names), group in zip(parts, groups)]
        self.sent, self.sent_back, self.version, self.losses = {}, {}, {}, [0.0] * make_reference.UPDATES
        self.orders = [order(schedule, i, d, self.m, make_reference.UPDATES) for i in range(d)]

    def forward(self, i, k):
        if i > 0 and (i, k) not in self.sent:
            return False
        t, part = divmod(k - 1, self.m)
        x, y = (both[part * self.microbatch:(part + 1) * self.microbatch] for both in self.batch_of(t))
        newest = len(self.stages[i].group.versions) - 1
        version = newest if self.alone else self.version.setdefault(t, newest)
        h = self.stages[i].forward(k, version, self.sent.pop((i, k), None), x, y)
        if i == self.d - 1:
            self.losses[t] += h.item() / self.m
        else:
            self.sent[i + 1, k] = h
        return True

    def backward(self, i, k):
        if i < self.d - 1 and (i, k) not in self.sent_back:
            return False
        gradient = self.sent_back.pop((i, k), None)
        self.sent_back[i - 1, k] = self.stages[i].backward(k, (k - 1) // self.m, 1 / self.m, gradient)
        return True

    def run(self):
        """Losses and final weights."""
        due = [next(steps) for steps in self.orders]
        while any(due):
            moved = False
            for i, step in enumerate(due):
                if step and getattr(self, step[0])(i, step[1]):
                    due[i], moved = next(self.orders[i], None), True
            if not moved:
                raise RuntimeError("deadlock")
        weights = {}
        for stage in self.stages:
            weights.update(stage.group.versions[-1])
        return self.losses, weights


def pipelines(golden):
    """What must come to a golden run: schedule, stages, microbatch."""
    batch, delays = make_reference.parse(golden)
    if len(delays) > 1:
        return [("pipedream", len(delays), batch)]
    if delays[0] == 0:
        return [("sequential", 2, 1), ("gpipe", 3, 2), ("flush", 4, 2), ("pipedream", 1, batch)]
    vertical = [("vertical_sync", delays[0] + 1, batch)]
    return vertical + [("2bw", 2, 2), ("2bw", 3, 1), ("2bw", 4, 1)] if delays[0] == 1 and batch > 2 else vertical


def compare(name, golden):
    """The worst differences of losses and, relative to each tensor's largest, of weights."""
    base = os.path.join(make_reference.HERE, f"{name}.{golden}")
    with open(base + ".losses") as file:
        wanted = [float(line) for line in file]
    wanted_weights = tensors.load(base + ".want.safetensors")
    for schedule, d, microbatch in pipelines(golden):
        losses, weights = Pipeline(name, schedule, d, make_reference.parse(golden)[0], microbatch).run()
        if len(losses) != len(wanted) or weights.keys() != wanted_weights.keys():
            raise ValueError(f"{base}: of something else")
        loss = max(abs(a - b) / max(1, abs(b)) for a, b in zip(losses, wanted))
        weight = max(float(abs(weights[key].numpy() - w).max() / abs(w).max())
                     for key, w in wanted_weights.items())
        yield schedule, d, microbatch, loss, weight


def main():
    failed = False
    for name, goldens in make_reference.GOLDEN.items():
        for golden in goldens:
            for schedule, d, microbatch, loss, weight in compare(name, golden):
                bad = not (loss < 1e-8 and weight < 1e-6)
                failed |= bad
                print(f"{'FAILED ' if bad else ''}{name} {golden}: {schedule}, {d} stages, microbatches of "
                      f"{microbatch}: losses {loss:.1e}, weights {weight:.1e}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
