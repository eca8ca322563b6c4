"""Writes what recurrent models give in PyTorch, in double: for every model NAME, of the size in CMakeLists.txt,
  NAME.init.safetensors   weights to start from, for the names and shapes that stand in it already, which a stage
                          program wrote (train --steps 0 --save)
  NAME.want.safetensors   the weights after one update of SGD at a rate of 2^20, in effect the gradients
  NAME.loss               the losses of ten updates of SGD at a rate of 1
and the samples, all of which are one batch. Needs PyTorch; the files are committed, so that the tests do not."""
import os
import sys

import numpy
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "golden"))
import tensors  # noqa: E402

SAMPLES = 8
GRADIENT_RATE = 2.0 ** 20


def path(end):
    return os.path.join(HERE, end)


def lstm(w, name, x, reverse=False, lengths=None):
    """One layer of torch.nn.LSTM by its own function, samples first; lengths: packed."""
    own = [w[f"{name}.{part}_l0"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    if reverse:
        own += [w[f"{name}.{part}_l0_reverse"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    zeros = torch.zeros(1 + reverse, x.shape[0], own[1].shape[1], dtype=x.dtype)
    form = (own, True, 1, 0.0, True, reverse)
    if lengths is None:
        return torch.lstm(x, (zeros, zeros), *form, True)[0]
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    y = torch.lstm(packed.data, packed.batch_sizes, (zeros, zeros), *form)[0]
    y = torch.nn.utils.rnn.PackedSequence(y, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    return torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0]


def bahdanau(w, name, query, keys, unseen):
    v = w[name + ".linear_att"]
    v = v / v.norm() * w[name + ".normalize_scalar"]
    q = F.linear(query, w[name + ".linear_q.weight"]).unsqueeze(2)
    k = F.linear(keys, w[name + ".linear_k.weight"]).unsqueeze(1)
    score = torch.tanh(q + k + w[name + ".normalize_bias"]) @ v
    return score.masked_fill(unseen.unsqueeze(1), -1e9).softmax(-1) @ keys


def shifted(x, first):
    return torch.cat((torch.full_like(x[:, :1], first), x[:, :-1]), 1)


def gnmt8_logits(w, source, before):
    lengths = (source != 0).sum(1)
    x = F.embedding(source, w["encoder.embedder.weight"]) * (source != 0).unsqueeze(-1)
    x = lstm(w, "encoder.rnn_layers.0", x, True, lengths)
    x = lstm(w, "encoder.rnn_layers.1", x)
    for i in (2, 3):
        x = x + lstm(w, f"encoder.rnn_layers.{i}", x)
    y = F.embedding(before, w["decoder.embedder.weight"]) * (before != 0).unsqueeze(-1)
    y = lstm(w, "decoder.att_rnn.rnn", y)
    seen = bahdanau(w, "decoder.att_rnn.attn", y, x, source == 0)
    y = lstm(w, "decoder.rnn_layers.0", torch.cat((y, seen), -1))
    for i in (1, 2):
        y = y + lstm(w, f"decoder.rnn_layers.{i}", torch.cat((y, seen), -1))
    return F.linear(y, w["decoder.classifier.classifier.weight"], w["decoder.classifier.classifier.bias"])


def gnmt8(w, source, target):
    logits = gnmt8_logits(w, source, shifted(target, 2))
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0, label_smoothing=0.1)


def s2vt(w, frames, words):
    seen = F.pad(F.linear(frames, w["frame_proj.weight"], w["frame_proj.bias"]), (0, 0, 0, words.shape[1]))
    said = F.pad(F.embedding(shifted(words, 1), w["embed.weight"]), (0, 0, frames.shape[1], 0))
    sentence = lstm(w, "lstm_2", torch.cat((lstm(w, "lstm_1", seen), said), -1))[:, frames.shape[1]:]
    logits = F.linear(sentence, w["word_proj.weight"], w["word_proj.bias"])
    return F.cross_entropy(logits.flatten(0, 1), words.flatten(), ignore_index=0)


def sentences(generator, length, classes, first, end):
    """Rows of tokens from `first` on that end with `end`, zeros behind."""
    rows = numpy.zeros((SAMPLES, length), numpy.int32)
    for i, row in enumerate(rows):
        n = 1 + (5 * i + 3) % length
        row[:n - 1] = generator.integers(first, classes, n - 1)
        row[n - 1] = end
    return rows


def write(name, loss_of, *data):
    for i, array in enumerate(data):
        numpy.save(path(f"{name}.{i}.npy"), array)
    data = [torch.from_numpy(x).double() if x.dtype == numpy.float32 else torch.from_numpy(x).long() for x in data]
    draw = numpy.random.default_rng(2)
    init = {key: 0.5 * draw.standard_normal(x.shape).astype(numpy.float32)
            for key, x in sorted(tensors.load(path(name + ".init.safetensors")).items())}
    tensors.save(path(name + ".init.safetensors"), init)

    def update(weights, rate):
        leaves = {key: x.detach().requires_grad_() for key, x in weights.items()}
        loss = loss_of(leaves, *data)
        loss.backward()
        return loss.item(), {key: x - rate * x.grad for key, x in leaves.items()}

    weights = {key: torch.from_numpy(x).double() for key, x in init.items()}
    want = update(weights, GRADIENT_RATE)[1]
    tensors.save(path(name + ".want.safetensors"), {key: x.detach().float().numpy() for key, x in want.items()})
    with open(path(name + ".loss"), "w") as file:
        for _ in range(10):
            loss, weights = update(weights, 1.0)
            file.write(f"{loss:.9g}\n")


if __name__ == "__main__":
    draw = numpy.random.default_rng(1)
    write("gnmt8", gnmt8, sentences(draw, 6, 24, 4, 3), sentences(draw, 5, 24, 4, 3))
    write("s2vt", s2vt, draw.standard_normal((SAMPLES, 5, 12)).astype(numpy.float32),
          sentences(draw, 4, 20, 3, 2))
