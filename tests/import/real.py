"""Logits of models of real shapes with random weights against transformers:

    python3 real.py PDC NAME...        (by hand; gigabytes of disk and memory for large models; needs torch and transformers)

NAME is one of configs/. For each: transformers makes the folder from the configuration, pdc builds `infer` for it, and both
compute one sample. Prints the parameters and the largest difference, relative to the largest logit. A difference above 1e-5 fails."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers as hf

here = os.path.dirname(os.path.abspath(__file__))
LENGTH, TARGETS = 128, 16


def sample(config):
    """The arrays of pdc's inputs and targets, options of pdc, and arguments of transformers."""
    draw = torch.Generator().manual_seed(1)
    if config.model_type == "vit":
        image = torch.rand(1, 3, config.image_size, config.image_size, generator=draw)
        return {"image": image, "label": torch.zeros(1, 1)}, [], {"pixel_values": (image - 0.5) / 0.5}
    tokens = torch.randint(5, config.vocab_size, (1, LENGTH), generator=draw)
    following = torch.randint(5, config.vocab_size, (1, TARGETS), generator=draw)
    if config.model_type == "t5":
        return ({"source": tokens, "next": following}, ["-D", f"n_source={LENGTH}", "-D", f"n_target={TARGETS}"],
                {"input_ids": tokens, "labels": following})
    if config.model_type == "whisper":
        features = torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions, generator=draw)
        return {"features": features, "next": following}, ["-D", f"n_target={TARGETS}"], {"input_features": features, "labels": following}
    data = {"tokens": tokens, "next": tokens}
    if config.model_type in ("bert", "roberta"):
        data = {"tokens": tokens, "words": tokens}
        if config.type_vocab_size > 1:
            data["token_types"] = torch.zeros_like(tokens)
    return data, ["-D", f"n_ctx={LENGTH}"], {"input_ids": tokens}


def compare(pdc, name):
    with open(os.path.join(here, "configs", name + ".json")) as file:
        fields = json.load(file)
    config = hf.AutoConfig.for_model(**fields)
    torch.manual_seed(1)
    model = getattr(hf, fields["architectures"][0])(config).float().eval()
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.join(work, name)
        model.save_pretrained(folder)
        data, options, given = sample(config)
        for key, x in data.items():
            np.save(os.path.join(work, key + ".npy"), x.numpy().astype(np.float32 if x.is_floating_point() and key != "label" else np.int32))
        with torch.no_grad():
            wanted = model(**given).logits.numpy()
        parameters = sum(p.numel() for p in model.parameters())
        del model
        for command in ([pdc, "infer", "--quiet", "--stages", "1", "--precision", "f32", *options, "-o", "infer", folder],
                        ["infer/infer", "--quiet", "--init", folder, "--data", *(f"{k}={k}.npy" for k in data), "--predict", "logits=logits.npy"]):
            subprocess.run(command, cwd=work, check=True)
        got = np.load(os.path.join(work, "logits.npy")).reshape(wanted.shape)
    worst = np.abs(got - wanted).max() / np.abs(wanted).max()
    print(f"{name}: {parameters:,} parameters, worst {worst:.1e}", flush=True)
    return worst > 1e-5


hf.logging.set_verbosity_error()
sys.exit(max(compare(os.path.abspath(sys.argv[1]), name) for name in sys.argv[2:]))
