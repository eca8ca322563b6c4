"""Writes what models with an encoder generate greedily in PyTorch, for tests/generate/encoders: sources CASE.jsonl, as a
file of --prompts, and their tokens, a line each, CASE.tokens. T5's small folders of random weights, t5 and t5_gated, are
Hugging Face's transformers'; gnmt8.safetensors has the shapes of ../recurrent. Needs torch and transformers:
    python3 make_encoders.py"""
import json
import os
import sys

import torch
from transformers import T5Config, T5ForConditionalGeneration

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "recurrent"))
import make_recurrent  # noqa: E402
import tensors  # noqa: E402

TOKENS = 11


def continued(logits_of, start, end):
    """The tokens behind `start`, up to the first `end`."""
    tokens = [start]
    for _ in range(TOKENS):
        logits = logits_of(tokens)
        best = torch.topk(logits, 2).values
        assert best[0] - best[1] > 1e-3, "two tokens are too close: another seed"
        tokens.append(int(logits.argmax()))
        if tokens[-1] == end:
            break
    return tokens[1:]


def write(name, sources, results):
    assert len({t for r in results for t in r}) > 6, "too few different tokens: another seed"
    assert len({tuple(r) for r in results}) == len(results), "the source has no effect: another seed"
    with open(os.path.join(here, name + ".jsonl"), "w") as out:
        out.writelines(json.dumps({"tokens": s}) + "\n" for s in sources)
    with open(os.path.join(here, name + ".tokens"), "w") as out:
        out.writelines(",".join(map(str, r)) + "\n" for r in results)


def make_t5(name, seed, **more):
    torch.manual_seed(seed)
    model = T5ForConditionalGeneration(T5Config(
        vocab_size=61, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_decoder_layers=3, num_heads=4,
        relative_attention_num_buckets=10, relative_attention_max_distance=11, decoder_start_token_id=0, **more)).eval()
    for key, weight in model.named_parameters():
        norm = "layer_norm" in key
        torch.nn.init.normal_(weight, 1.0 if norm else 0.0, 0.3 if norm else 1.2 if "shared" in key else 0.5)
    draw = torch.Generator().manual_seed(seed)
    sources = [torch.randint(2, 61, (n,), generator=draw).tolist() for n in (6, 12, 1, 9, 4)]
    results = []
    for s in sources:
        ids = torch.tensor([s])
        with torch.no_grad():
            results.append(continued(
                lambda tokens: model(input_ids=ids, decoder_input_ids=torch.tensor([tokens])).logits[0, -1], 0, -1))
            whole = model.generate(ids, do_sample=False, num_beams=1, max_new_tokens=TOKENS, eos_token_id=None,
                                   use_cache=False)  # its cache has a layer for each of the encoder's
        assert whole[0, 1:].tolist() == results[-1], "generate differs"

    model.save_pretrained(os.path.join(here, name))
    write(name, sources, results)


def make_gnmt8(seed):
    draw = torch.Generator().manual_seed(seed)
    shapes = tensors.load(make_recurrent.path("gnmt8.init.safetensors"))
    init = {key: (torch.randn(x.shape, generator=draw) * (0.5 if "bias" in key else 2)) for key, x in shapes.items()}
    weights = {key: x.double() for key, x in init.items()}
    sources = [torch.randint(4, 24, (n,), generator=draw).tolist() + [3] for n in (3, 5, 1, 4)]
    results = []
    for s in sources:
        padded = torch.tensor([s + [0] * (6 - len(s))])
        results.append(continued(
            lambda tokens: make_recurrent.gnmt8_logits(weights, padded, torch.tensor([tokens]))[0, -1], 2, -1))
    write("gnmt8", sources, results)
    tensors.save(os.path.join(here, "gnmt8.safetensors"), {key: x.numpy() for key, x in init.items()})


def first_good(make):
    for seed in range(1, 200):
        try:
            return make(seed)
        except AssertionError as why:
            print(seed, why)
    raise SystemExit("no seed is good")


first_good(make_gnmt8)
first_good(lambda seed: make_t5("t5", seed))
first_good(lambda seed: make_t5("t5_gated", seed, feed_forward_proj="gated-gelu", tie_word_embeddings=False))
