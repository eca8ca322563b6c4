"""Writes small checkpoints of random weights and the tokens that Hugging Face's transformers generate from them,
greedily: MODEL.safetensors, MODEL.tokens and MODEL.window, for tests/generate/run. Needs torch and transformers:
    python3 make_golden.py
MODEL.window goes on past the context: whenever that is full, positions begin anew with its later half.
gpt2.logprobs has, for each of these tokens, its log-probability and the three most probable tokens with theirs.
chat.jsonl and chat.tokens: lines of messages, and the tokens of their prompts by ../chats/tokenizer."""
import json
import os

import torch
from safetensors.torch import save_file
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Mamba2Config, Mamba2ForCausalLM,
                          MambaConfig, MambaForCausalLM, PreTrainedTokenizerFast)

CONTEXT, PROMPT, WINDOWED = 24, [7, 3, 52, 11, 30], 45
GPT2_SEED, LLAMA_SEED, MAMBA_SEED, MAMBA2_SEED = 1, 1, 1, 2
here = os.path.dirname(os.path.abspath(__file__))


def choose(model, tokens):
    logits = model(torch.tensor([tokens])).logits[0, -1]
    best = torch.topk(logits, 2).values
    assert best[0] - best[1] > 1e-3, "two tokens are too close: another seed"
    return int(logits.argmax())


def plain(model):
    """Token by token, the whole sequence each time, up to the token behind a full context."""
    tokens = list(PROMPT)
    while len(tokens) <= CONTEXT:
        tokens.append(choose(model, tokens))
    return tokens


def windowed(model):
    tokens, start = list(PROMPT), 0
    for _ in range(WINDOWED):
        if len(tokens) - start > CONTEXT:
            start += (CONTEXT + 1) // 2
        tokens.append(choose(model, tokens[start:]))
    return tokens


def write(name, text):
    with open(os.path.join(here, name), "w") as out:
        out.write(text)


def logprobs(model, tokens):
    """A line for each token behind the prompt."""
    lines = []
    for i in range(len(PROMPT), len(tokens)):
        p = torch.log_softmax(model(torch.tensor([tokens[:i]])).logits[0, -1].double(), -1)
        best = torch.topk(p, 3)
        lines.append(json.dumps({"token": tokens[i], "logprob": float(p[tokens[i]]),
                                 "top": [[int(t), float(x)] for t, x in zip(best.indices, best.values)]}))
    return "\n".join(lines) + "\n"


def make_chats():
    folder = os.path.join(here, "..", "chats", "tokenizer")
    with open(os.path.join(folder, "tokenizer_config.json")) as file:
        config = json.load(file)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"),
                                        eos_token=config["eos_token"]["content"])
    tokenizer.chat_template = config["chat_template"]
    chats = [[{"role": "user", "content": "Wie geht's, Übermut?"}],
             [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2"},
              {"role": "assistant", "content": "4"}, {"role": "user", "content": "and <|im_end|> 3?\n"}]]
    tokens = [tokenizer.apply_chat_template(c, add_generation_prompt=True, return_dict=False) for c in chats]
    write("chat.jsonl", "".join(json.dumps({"messages": c}) + "\n" for c in chats))
    write("chat.tokens", "".join(json.dumps({"tokens": t}) + "\n" for t in tokens))


def make(name, seed, model, rename):
    torch.manual_seed(seed)
    for key, weight in model.named_parameters():
        norm = key.endswith("weight") and weight.dim() == 1
        torch.nn.init.normal_(weight, 1.0 if norm else 0.0, 0.4 if weight.dim() == 1 else 0.9)
    model.eval()
    with torch.no_grad():
        tokens = plain(model)
        cached = model.generate(torch.tensor([PROMPT]), do_sample=False, max_length=CONTEXT, use_cache=True,
                                pad_token_id=0, eos_token_id=None)
        assert cached[0].tolist() == tokens[:CONTEXT]
        window = windowed(model)
        if name == "gpt2":
            write("gpt2.logprobs", logprobs(model, tokens))
    assert len(set(tokens[len(PROMPT):])) > 8, "too few different tokens: another seed"
    for kind, all_tokens in (("tokens", tokens), ("window", window)):
        write(f"{name}.{kind}", ",".join(str(t) for t in all_tokens[len(PROMPT):]) + "\n")
    state = {rename(key): weight.detach().contiguous() for key, weight in model.named_parameters()}
    save_file(state, os.path.join(here, name + ".safetensors"))


make("gpt2", GPT2_SEED,
     GPT2LMHeadModel(GPT2Config(n_layer=3, n_head=2, n_embd=16, n_positions=CONTEXT, vocab_size=61)),
     lambda key: key.removeprefix("transformer."))
make("llama", LLAMA_SEED,
     LlamaForCausalLM(LlamaConfig(num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, hidden_size=16,
                                  intermediate_size=24, max_position_embeddings=CONTEXT, vocab_size=61,
                                  rms_norm_eps=1e-5, tie_word_embeddings=False)),
     lambda key: key.removeprefix("model."))
make("mamba", MAMBA_SEED,
     MambaForCausalLM(MambaConfig(num_hidden_layers=3, hidden_size=16, state_size=4, vocab_size=61,
                                  layer_norm_epsilon=1e-5, use_mambapy=False)),
     lambda key: key)
make("mamba2", MAMBA2_SEED,
     Mamba2ForCausalLM(Mamba2Config(num_hidden_layers=2, hidden_size=16, state_size=4, num_heads=4, head_dim=8,
                                    n_groups=2, chunk_size=8, vocab_size=61, layer_norm_epsilon=1e-5,
                                    tie_word_embeddings=True)),
     lambda key: key)
make_chats()
