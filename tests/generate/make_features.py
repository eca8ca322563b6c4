"""Writes a small Whisper of random weights, whisper/, sources for it, features.npy, and what it generates greedily in transformers from them
behind the first token and PROMPT: features.tokens, a line each. Needs torch and transformers:
    python3 make_features.py"""
import os

import numpy as np
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

PROMPT, SOURCES = [7, 11], 3
here = os.path.dirname(os.path.abspath(__file__))


def make(seed):
    torch.manual_seed(seed)
    model = WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=61, num_mel_bins=6, d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=20, decoder_layers=2,
        decoder_attention_heads=4, decoder_ffn_dim=24, max_source_positions=10, max_target_positions=14, decoder_start_token_id=5,
        pad_token_id=3, bos_token_id=3, eos_token_id=4)).eval()
    for key, weight in model.named_parameters():
        torch.nn.init.normal_(weight, 1.0 if "norm.weight" in key else 0.0, 1.0 if "embed_tokens" in key else 0.5)
    features = 2 * torch.randn(SOURCES, 6, 20)
    lines = []
    for source in features:
        tokens = [model.config.decoder_start_token_id] + PROMPT
        while len(tokens) < model.config.max_target_positions + 1:
            with torch.no_grad():
                logits = model(input_features=source[None], decoder_input_ids=torch.tensor([tokens])).logits[0, -1]
            best = torch.topk(logits, 2).values
            assert best[0] - best[1] > 1e-3, "two tokens are too close"
            tokens.append(int(logits.argmax()))
        lines.append(",".join(map(str, tokens[1 + len(PROMPT):])) + "\n")
    assert len(set(lines)) == len(lines), "the source has no effect"
    model.save_pretrained(os.path.join(here, "whisper"))
    os.remove(os.path.join(here, "whisper", "generation_config.json"))
    np.save(os.path.join(here, "features.npy"), features.numpy())
    with open(os.path.join(here, "features.tokens"), "w") as out:
        out.writelines(lines)


torch.set_num_threads(1)
for seed in range(1, 200):
    try:
        make(seed)
        break
    except AssertionError as why:
        print(seed, why)
