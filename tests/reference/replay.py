"""Checks the golden runs by other means than those that wrote them: executes pipelines. Ranks do their forward
and backward passes one microbatch at a time, in the order in which each schedule has them; a forward pass keeps
the weights it saw for its backward pass; an update makes a new version, and which one a microbatch sees follows
from what is there when it comes, not from a formula of delays. A pass waits until what it needs is there.

Where stages update on their own (`pipedream`), what is there when a batch's first microbatch comes to a rank is
what the updates of the batches made that this rank has ended. Else an update is of all stages, and this holds at
stage 0, where the version that a batch keeps to is decided. Needs PyTorch."""
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


def in_flight(replicas, ahead):
    """Microbatches that a rank of each stage holds under 1F1B (docs/guide/schedules.md)."""
    n = [1]
    for w, after in reversed(list(zip(replicas, replicas[1:]))):
        n.insert(0, -(-(n[0] * after + ahead * max(w, after)) // w))
    return n


class Rank:
    """Replica r of w: takes microbatches r + 1, r + 1 + w, ..., and counts them from 1."""

    def __init__(self, schedule, m, n, r, w, updates):
        self.r, self.w, self.share, self.done = r, w, m // w, 0
        if schedule in ("2bw", "pipedream", "vertical_sync"):
            parts = [passes(1, self.share * updates, n)]
        else:
            n = {"sequential": 1, "gpipe": self.share, "flush": n}[schedule]
            parts = [passes(t * self.share + 1, (t + 1) * self.share, n) for t in range(updates)]
        self.due = ((action, (j - 1) * w + r + 1) for part in parts for action, j in part)
        self.next = next(self.due)


class Pipeline:
    def __init__(self, name, schedule, replicas, batch, microbatch, ahead=1):
        model, d = make_reference.MODELS[name], len(replicas)
        weights, parts = make_reference.start(name), make_reference.stages(name, d)
        self.d, self.m, self.microbatch, updates = d, batch // microbatch, microbatch, make_reference.UPDATES
        self.batch_of, self.alone = make_reference.batches(batch), schedule == "pipedream"
        if self.alone:
            groups = [Group(model, {key: weights[key] for key in names}, self.m) for _, names in parts]
        else:
            groups = [Group(model, weights, self.m * d)] * d
        self.stages = [Stage(pieces, names, group) for (pieces, names), group in zip(parts, groups)]
        self.sent, self.sent_back, self.version, self.losses = {}, {}, {}, [0.0] * updates
        self.ranks = [(i, Rank(schedule, self.m, n, r, replicas[i], updates))
                      for i, n in enumerate(in_flight(replicas, ahead)) for r in range(replicas[i])]

    def forward(self, i, rank, k):
        if i > 0 and (i, k) not in self.sent:
            return False
        t, part = divmod(k - 1, self.m)
        version = self.version.setdefault((i if self.alone else 0, rank.r if self.alone else 0, t),
                                          rank.done // rank.share)
        if version >= len(self.stages[i].group.versions):
            return False
        x, y = (both[part * self.microbatch:(part + 1) * self.microbatch] for both in self.batch_of(t))
        h = self.stages[i].forward(k, version, self.sent.pop((i, k), None), x, y)
        if i == self.d - 1:
            self.losses[t] += h.item() / self.m
        else:
            self.sent[i + 1, k] = h
        return True

    def backward(self, i, rank, k):
        if i < self.d - 1 and (i, k) not in self.sent_back:
            return False
        gradient = self.sent_back.pop((i, k), None)
        self.sent_back[i - 1, k] = self.stages[i].backward(k, (k - 1) // self.m, 1 / self.m, gradient)
        rank.done += 1
        return True

    def run(self):
        """Losses and final weights."""
        while any(rank.next for _, rank in self.ranks):
            moved = False
            for i, rank in self.ranks:
                if rank.next and getattr(self, rank.next[0])(i, rank, rank.next[1]):
                    rank.next, moved = next(rank.due, None), True
            if not moved:
                raise RuntimeError("deadlock")
        weights = {}
        for stage in self.stages:
            weights.update(stage.group.versions[-1])
        return self.losses, weights


# What must come to a golden run: schedule, replicas, microbatch, and where it is not 1, ahead.
DRAINED = [("sequential", [1, 1], 1), ("gpipe", [1, 1, 1], 2), ("flush", [1, 1, 1, 1], 2), ("flush", [2], 2)]
REPLICATED = [1, 2, 1], [2, 2], [3, 1], [1, 3, 1]
PIPELINES = {
    "8.0": DRAINED,
    "8.1": [("2bw", [1, 1], 2), ("2bw", [1, 1, 1], 1), ("2bw", [1, 1, 1, 1], 1), ("2bw", [2, 2], 2)],
    "12.0": DRAINED + [("flush", replicas, 1) for replicas in REPLICATED],
    "12.1": [("2bw", [1, 1], 1, 2)] + [("2bw", replicas, 1) for replicas in REPLICATED],
    "2.0": [("pipedream", [1], 2), ("vertical_sync", [1], 2)],
    "2.1": [("vertical_sync", [1, 1], 2)],
    "2.2": [("vertical_sync", [1, 1, 1], 2)],
    "2.3": [("vertical_sync", [1, 1, 1, 1], 2)],
    "2.1-0": [("pipedream", [1, 1], 2)],
    "2.2-0": [("pipedream", [1, 1], 2, 2)],
    "2.2-1-0": [("pipedream", [1, 1, 1], 2)],
    "2.3-2-1-0": [("pipedream", [1, 1, 1, 1], 2)],
    "4.1-0": [("pipedream", [2, 2], 2)],
    "4.3": [("vertical_sync", [1, 2, 1], 2)],
    "4.3-1-0": [("pipedream", [1, 2, 1], 2)],
    "6.1-0": [("pipedream", [3, 1], 2)],
    "6.3": [("vertical_sync", [1, 3, 1], 2)],
    "6.3-1-0": [("pipedream", [1, 3, 1], 2)],
}


def compare(name, golden):
    """The worst differences of losses and, relative to each tensor's largest, of weights."""
    base = os.path.join(make_reference.HERE, f"{name}.{golden}")
    with open(base + ".losses") as file:
        wanted = [float(line) for line in file]
    wanted_weights = tensors.load(base + ".want.safetensors")
    for schedule, replicas, microbatch, *ahead in PIPELINES[golden]:
        batch = make_reference.parse(golden)[0]
        losses, weights = Pipeline(name, schedule, replicas, batch, microbatch, *ahead).run()
        if len(losses) != len(wanted) or weights.keys() != wanted_weights.keys():
            raise ValueError(f"{base}: of something else")
        loss = max(abs(a - b) / max(1, abs(b)) for a, b in zip(losses, wanted))
        weight = max(float(abs(weights[key].numpy() - w).max() / abs(w).max())
                     for key, w in wanted_weights.items())
        yield f"{schedule}, replicas {replicas}, microbatches of {microbatch}", loss, weight


def main():
    failed = False
    for name, goldens in make_reference.GOLDEN.items():
        for golden in goldens:
            for pipeline, loss, weight in compare(name, golden):
                bad = not (loss < 1e-8 and weight < 1e-6)
                failed |= bad
                print(f"{'FAILED ' if bad else ''}{name} {golden}: {pipeline}: "
                      f"losses {loss:.1e}, weights {weight:.1e}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
