"""Writes folder/, the stand-in for SmolLM2-135M-Instruct in docs/guide/chat-to-c.md: a small Llama of random weights with its fields,
and the tokenizer of ../chats, whose chat template is SmolLM2's kind. Needs torch and transformers:
    python3 make_folder.py
"""
import json
import os
import shutil

import torch
import transformers as hf

here = os.path.dirname(os.path.abspath(__file__))
tokenizer, folder = os.path.join(here, "..", "chats", "tokenizer"), os.path.join(here, "folder")
with open(os.path.join(tokenizer, "tokenizer.json")) as file:
    tokens = json.load(file)
    rows = 1 + max(t["id"] for t in tokens["added_tokens"] + [{"id": i} for i in tokens["model"]["vocab"].values()])
torch.manual_seed(1)
model = hf.LlamaForCausalLM(hf.LlamaConfig(
    vocab_size=rows, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
    max_position_embeddings=2048, tie_word_embeddings=True, initializer_range=0.1, bos_token_id=0, eos_token_id=2, pad_token_id=3))
model.to(torch.bfloat16).save_pretrained(folder)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copy(os.path.join(tokenizer, name), folder)
