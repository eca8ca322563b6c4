"""Training as the schedules define it: W(t+1) = optimizer(W(t), batch t's gradient at older weights).

Every parameter w has its delay, and the gradient is taken where w is as update max(t - delay, 0) left it:
  0                `sequential`, `gpipe`, `flush`, `interleaved`, `zb_h1`
  1                `2bw`
  d - 1 - i        `pipedream` on d stages, where w is on stage i (from 0); a batch is one microbatch
  d - 1            `pipedream` with vertical_sync
Replicas change nothing but that a batch of `pipedream` is as many microbatches as all stages' replicas can share,
and its delay at stage i ceil((n - 1) / m), n microbatches in flight at a rank, m of them a batch; with
vertical_sync the largest. Plain loops over dictionaries of tensors."""
import collections
import math

import torch


def learning_rate(t, lr, warmup=0, total=0, floor=0.0, kind="cosine"):
    """nanoGPT's rule: the rate of update t, counted from 0."""
    if t < warmup:
        return lr * (t + 1) / (warmup + 1)
    if kind == "constant":
        return lr
    done = min(1.0, (t - warmup) / max(1, total - warmup))
    if kind == "linear":
        return lr + (floor - lr) * done
    return floor + 0.5 * (lr - floor) * (1 + math.cos(math.pi * done))


class Correction:
    """Makes up for gradients that are `delays[name]` updates old: the step's momentum is extrapolated by `updates`, or by as
    many as they are late if these are more, the step is longer by the share `damping`, and that share of the last change of the weights is taken back."""

    def __init__(self, delays, updates=2.0, damping=0.5):
        self.delays, self.updates, self.damping, self.before = delays, updates, damping, None

    def direction(self, name, momentum, gradient, beta):
        updates = max(self.updates, self.delays[name]) if self.delays[name] else 0.0
        share = min(1.0, updates * (1 - beta) / beta)
        return (1 - share) * momentum + share * gradient

    def damping_of(self, name):
        return self.damping if self.delays[name] else 0.0

    def change(self, name, w):
        """What is taken back."""
        return self.damping_of(name) * (w - self.before[name]) if self.before else 0.0


NO_CORRECTION = Correction(collections.defaultdict(int))


class AdamW:
    """Decoupled decay of matrices only, bias-corrected moments; PyTorch's order of operations."""

    def __init__(self, weights, betas, weight_decay, eps=1e-8):
        self.betas, self.weight_decay, self.eps, self.t = betas, weight_decay, eps, 0
        self.m = {name: torch.zeros_like(w) for name, w in weights.items()}
        self.v = {name: torch.zeros_like(w) for name, w in weights.items()}

    def step(self, weights, gradients, lr, correction=NO_CORRECTION):
        self.t += 1
        (beta1, beta2), new = self.betas, {}
        for name, w in weights.items():
            g = gradients[name]
            m = self.m[name].mul_(beta1).add_(g, alpha=1 - beta1)
            v = self.v[name].mul_(beta2).addcmul_(g, g, value=1 - beta2)
            decay = self.weight_decay if w.dim() >= 2 else 0.0
            denominator = (v / (1 - beta2 ** self.t)).sqrt_().add_(self.eps)
            direction = correction.direction(name, m / (1 - beta1 ** self.t), g, beta1) / denominator
            step = lr * (1 + correction.damping_of(name)) * direction
            new[name] = w * (1 - lr * decay) - step - correction.change(name, w)
        return new


class SGD:
    """Momentum as PyTorch's: b = momentum b + g; w -= lr b. Decay adds to matrices' gradients."""

    def __init__(self, weights, momentum=0.0, weight_decay=0.0):
        self.momentum, self.weight_decay = momentum, weight_decay
        self.b = {name: torch.zeros_like(w) for name, w in weights.items()}

    def step(self, weights, gradients, lr, correction=NO_CORRECTION):
        new = {}
        for name, w in weights.items():
            decay = self.weight_decay if w.dim() >= 2 else 0.0
            g = gradients[name] + decay * w
            b, rest = self.b[name].mul_(self.momentum).add_(g), 1 - self.momentum
            direction = correction.direction(name, rest * b, g, self.momentum) / rest if self.momentum else b
            new[name] = w - lr * (1 + correction.damping_of(name)) * direction - correction.change(name, w)
        return new


def gradient(loss_of, weights, batch, microbatch):
    """Loss and gradient of the mean over `batch` = (x, y), accumulated over microbatches in order."""
    x, y = batch
    leaves = {name: w.detach().requires_grad_() for name, w in weights.items()}
    total, count = 0.0, x.shape[0] // microbatch
    for xs, ys in zip(x.split(microbatch), y.split(microbatch)):
        loss = loss_of(leaves, xs, ys) / count
        loss.backward()
        total += loss.item()
    return total, {name: w.grad for name, w in leaves.items()}


def clip(gradients, limit):
    """Scales by limit / norm where the norm over all gradients exceeds it; returns the norm."""
    norm = math.sqrt(sum(g.double().square().sum().item() for g in gradients.values()))
    if limit and norm > limit:
        for g in gradients.values():
            g.mul_(limit / norm)
    return norm


def train(loss_of, weights, optimizer, batch_of, steps, rate_of, delay, microbatch, clip_norm=0.0,
          observe=None, corrects=False):
    """`steps` updates from `weights`; batch_of(t) gives batch t; `delay` is one for all parameters or a
    dictionary; with `corrects` it is corrected. Returns the losses and the final weights."""
    delays = delay if isinstance(delay, dict) else dict.fromkeys(weights, delay)
    correction = Correction(delays) if corrects else NO_CORRECTION
    versions, losses = collections.deque([weights], max(delays.values()) + 1), []
    for t in range(steps):
        newest = len(versions) - 1
        used = {name: versions[max(newest - delays[name], 0)][name] for name in weights}
        loss, gradients = gradient(loss_of, used, batch_of(t), microbatch)
        clip(gradients, clip_norm)
        before, weights = weights, optimizer.step(weights, gradients, rate_of(t), correction)
        if corrects:
            correction.before = before
        versions.append(weights)
        losses.append(loss)
        if observe:
            observe(t, loss, weights)
    return losses, weights
