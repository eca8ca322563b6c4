"""Writes Hugging Face folders of small random models, and what transformers computes by them: for each case below
folders/CASE/ with config.json and safetensors, logits.npy, tokens.npy, next.npy, losses, one line an update of SGD
over all samples, tuned.npy, the logits after these updates, and greedy, the tokens that the model continues PROMPT
with. Needs torch and transformers:
    python3 make_folders.py [CASE...]
"""
import os
import shutil
import sys

import numpy as np
import torch
import transformers as hf

SAMPLES, LENGTH, VOCAB, UPDATES, PROMPT = 3, 16, 61, 5, [7, 3, 52, 11, 30]
RATE, MOMENTUM = 0.05, 0.9
here = os.path.dirname(os.path.abspath(__file__))

small = {"vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": LENGTH,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, "attn_implementation": "eager"}
llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64, "rope_theta": 500.0}
yarn = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 1.5, "beta_slow": 0.2, "mscale": 0.7, "mscale_all_dim": 0.9,
        "original_max_position_embeddings": 8, "rope_theta": 50.0}
linear = {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}
latent = {"num_key_value_heads": 4, "kv_lora_rank": 6, "q_lora_rank": 10, "qk_rope_head_dim": 6, "qk_nope_head_dim": 5,
          "v_head_dim": 3, "moe_intermediate_size": 12, "experts_implementation": "eager"}
cases = {
    "llama": (hf.LlamaConfig, hf.LlamaForCausalLM, {"rms_norm_eps": 1e-5}),
    "llama3": (hf.LlamaConfig, hf.LlamaForCausalLM,
               {"head_dim": 8, "rope_parameters": llama3, "tie_word_embeddings": True}),
    "llama_biases": (hf.LlamaConfig, hf.LlamaForCausalLM,
                     {"attention_bias": True, "mlp_bias": True, "rope_parameters": linear}),
    "llama_yarn": (hf.LlamaConfig, hf.LlamaForCausalLM,
                   {"rope_parameters": {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 8,
                                        "rope_theta": 300.0}}),
    "mistral": (hf.MistralConfig, hf.MistralForCausalLM, {"head_dim": 6, "sliding_window": 5}),
    "qwen2": (hf.Qwen2Config, hf.Qwen2ForCausalLM,
              {"tie_word_embeddings": True, "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 5,
               "max_window_layers": 1}),
    "qwen3": (hf.Qwen3Config, hf.Qwen3ForCausalLM, {"head_dim": 8, "pad_token_id": 33}),
    "olmo2": (hf.Olmo2Config, hf.Olmo2ForCausalLM, {}),
    "phi3": (hf.Phi3Config, hf.Phi3ForCausalLM,
             {"num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 6,
              "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}),
    "gemma": (hf.GemmaConfig, hf.GemmaForCausalLM, {"head_dim": 8, "hidden_act": "gelu_pytorch_tanh", "pad_token_id": 54}),
    "gemma2": (hf.Gemma2Config, hf.Gemma2ForCausalLM,
               {"head_dim": 8, "num_hidden_layers": 3, "query_pre_attn_scalar": 12, "sliding_window": 5,
                "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gemma3": (hf.Gemma3TextConfig, hf.Gemma3ForCausalLM,
               {"head_dim": 8, "num_hidden_layers": 6, "query_pre_attn_scalar": 12, "sliding_window": 5,
                "sliding_window_pattern": 3, "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 2.5, "rope_theta": 500.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}),
    "gpt2": (hf.GPT2Config, hf.GPT2LMHeadModel,
             {"n_positions": LENGTH, "n_embd": 16, "n_layer": 2, "n_head": 2, "resid_pdrop": 0, "embd_pdrop": 0,
              "attn_pdrop": 0}),
    "gpt_neox": (hf.GPTNeoXConfig, hf.GPTNeoXForCausalLM,
                 {"num_attention_heads": 2, "intermediate_size": 40, "hidden_dropout": 0.0}),
    "gpt_neox_sequential": (hf.GPTNeoXConfig, hf.GPTNeoXForCausalLM,
                            {"num_attention_heads": 2, "use_parallel_residual": False, "attention_bias": False,
                             "rope_parameters": {"rope_type": "default", "rope_theta": 100.0,
                                                 "partial_rotary_factor": 1.0}}),
    "qwen3_moe": (hf.Qwen3MoeConfig, hf.Qwen3MoeForCausalLM,
                  {"head_dim": 8, "moe_intermediate_size": 12, "num_experts": 5, "num_experts_per_tok": 2, "norm_topk_prob": True}),
    "qwen3_moe_mixed": (hf.Qwen3MoeConfig, hf.Qwen3MoeForCausalLM,
                        {"head_dim": 6, "moe_intermediate_size": 12, "num_experts": 4, "num_experts_per_tok": 3,
                         "norm_topk_prob": False, "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3],
                         "use_sliding_window": True, "sliding_window": 5, "attention_bias": True,
                         "tie_word_embeddings": True, "rope_parameters": linear}),
    "deepseek_v3": (hf.DeepseekV3Config, hf.DeepseekV3ForCausalLM,
                    {**latent, "first_k_dense_replace": 1, "n_routed_experts": 8,
                     "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "n_shared_experts": 2,
                     "rope_parameters": yarn}),
    "deepseek_v3_plain": (hf.DeepseekV3Config, hf.DeepseekV3ForCausalLM,
                          {**latent, "q_lora_rank": None, "first_k_dense_replace": 0, "n_routed_experts": 5,
                           "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
                           "norm_topk_prob": False, "routed_scaling_factor": 1.0, "rope_interleave": False,
                           "attention_bias": True, "tie_word_embeddings": True}),
    "mixtral": (hf.MixtralConfig, hf.MixtralForCausalLM, {"num_local_experts": 3, "num_experts_per_tok": 2}),
}
updates = {"qwen3_moe": 10, "qwen3_moe_mixed": 10, "gemma3": 10}  # by default UPDATES
sharded = {"qwen2"}  # saved in several files with an index


def randomise(model, around):
    """Gains around 1, or 0 where the model adds 1; all large enough for every term to count. So are routers' biases."""
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            torch.nn.init.normal_(b, 0.0, 0.3)
    for name, p in model.named_parameters():
        gain = p.dim() == 1 and name.endswith("weight")
        torch.nn.init.normal_(p, around if gain else 0.0, 0.2 if p.dim() == 1 else 0.3)


def continued(model):
    tokens = list(PROMPT)
    while len(tokens) < LENGTH:
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(PROMPT):]


def losses(model, tokens, targets, updates):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    for _ in range(updates):
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def make(name):
    of_config, of_model, options = cases[name]
    torch.manual_seed(1)
    common = {k: v for k, v in small.items() if not name.startswith("gpt2") or not k.startswith(("hidden", "num", "inter"))}
    if name.startswith("gpt2"):
        del common["max_position_embeddings"]
    if name.startswith("gpt_neox"):
        del common["num_key_value_heads"]
    model = of_model(of_config(**{**common, **options}))
    randomise(model, 0.0 if name.startswith("gemma") else 1.0)
    model.eval()
    folder = os.path.join(here, "folders", name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size="20KB" if name in sharded else "5GB")
    os.remove(os.path.join(folder, "generation_config.json"))
    ids = torch.randint(0, VOCAB, (SAMPLES, LENGTH + 1))
    tokens, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    assert model.config.pad_token_id is None or (tokens == model.config.pad_token_id).any()  # no gradient for its row
    np.save(os.path.join(folder, "tokens.npy"), tokens.numpy().astype(np.int32))
    np.save(os.path.join(folder, "next.npy"), targets.numpy().astype(np.int32))
    with torch.no_grad():
        np.save(os.path.join(folder, "logits.npy"), model(tokens).logits.numpy().astype(np.float32))
        with open(os.path.join(folder, "greedy"), "w") as out:
            out.write(",".join(str(t) for t in continued(model)) + "\n")
    with open(os.path.join(folder, "losses"), "w") as out:
        out.writelines(f"{loss:.9g}\n" for loss in losses(model, tokens, targets, updates.get(name, UPDATES)))
    with torch.no_grad():
        np.save(os.path.join(folder, "tuned.npy"), model(tokens).logits.numpy().astype(np.float32))


torch.set_num_threads(1)
for case in sys.argv[1:] or cases:
    make(case)
