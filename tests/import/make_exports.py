"""Writes what llama.cpp's own Python library makes of folders/: for each case below exports/CASE, a line for each field and
each tensor of the GGUF files of type f32, f16 and q8_0. Names of tensors are those of gguf's map from Hugging Face's names,
numbers are rounded by gguf's quantisation. Needs torch, transformers and gguf 0.19:
    python3 make_exports.py [CASE...]
"""
import json
import os
import sys

import gguf
import numpy as np
import torch
import transformers as hf

from gguf_lines import lines

here = os.path.dirname(os.path.abspath(__file__))
ARCH = gguf.MODEL_ARCH
cases = {"llama": ARCH.LLAMA, "llama3": ARCH.LLAMA, "llama_biases": ARCH.LLAMA, "mistral": ARCH.LLAMA, "qwen2": ARCH.QWEN2,
         "qwen3": ARCH.QWEN3, "olmo2": ARCH.OLMO2, "gemma": ARCH.GEMMA, "gemma2": ARCH.GEMMA2, "gemma3": ARCH.GEMMA3,
         "qwen3_moe": ARCH.QWEN3MOE, "phi3": ARCH.PHI3,
         "gpt2": ARCH.GPT2, "gpt_neox": ARCH.GPTNEOX, "gpt_neox_sequential": ARCH.GPTNEOX}
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0}


def permuted(x, heads):
    """Rows of a head: its halves in turns, as llama.cpp rotates neighbours."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def by_part(x, heads):
    """Rows of (head, part) to rows of (part, head)."""
    size = x.shape[0] // heads // 3
    return x.reshape(heads, 3, size, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)


def fields(writer, arch, c):
    layers, heads, width = c.num_hidden_layers, c.num_attention_heads, c.hidden_size
    writer.add_type("model")
    writer.add_vocab_size(c.vocab_size)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_head_count(heads)
    if arch == ARCH.GPT2:
        writer.add_feed_forward_length(c.n_inner or 4 * width)
        writer.add_layer_norm_eps(c.layer_norm_epsilon)
        return
    writer.add_feed_forward_length(c.intermediate_size)
    rope = c.rope_parameters
    if arch == ARCH.GEMMA3:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        writer.add_sliding_window(c.sliding_window)
        rope = rope["full_attention"]
    if arch == ARCH.QWEN3MOE:
        writer.add_expert_count(c.num_experts)
        writer.add_expert_used_count(c.num_experts_per_tok)
        writer.add_expert_feed_forward_length(c.moe_intermediate_size)
    writer.add_rope_freq_base(rope["rope_theta"])
    head = getattr(c, "head_dim", None) or width // heads
    if arch == ARCH.GPTNEOX:
        writer.add_rope_dimension_count(int(rope["partial_rotary_factor"] * head))
        writer.add_parallel_residual(c.use_parallel_residual)
        writer.add_layer_norm_eps(c.layer_norm_eps)
        return
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_key_length(head)
    writer.add_value_length(head)
    if arch == ARCH.LLAMA:
        writer.add_rope_dimension_count(head)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if arch == ARCH.GEMMA2:
        writer.add_attn_logit_softcapping(c.attn_logit_softcapping)
        writer.add_final_logit_softcapping(c.final_logit_softcapping)
        writer.add_sliding_window(c.sliding_window)
    if arch == ARCH.PHI3:
        writer.add_rope_dimension_count(int(rope.get("partial_rotary_factor", 1) * head))
        writer.add_rope_scaling_orig_ctx_len(c.max_position_embeddings)
        writer.add_sliding_window(c.sliding_window or 0)


def frequencies(c):
    """Llama 3's factors of frequencies."""
    rope, head = c.rope_parameters, getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    if rope["rope_type"] != "llama3":
        return None
    plain = 1 / rope["rope_theta"] ** (torch.arange(0, head, 2, dtype=torch.float64) / head)
    scaled = hf.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"](c, "cpu")[0].double()
    return (plain / scaled).float().numpy()


def separate(state):
    """Experts' gates and their products are one tensor in transformers 5."""
    for name, x in state.items():
        if name.endswith("experts.gate_up_proj"):
            gate, up = x.chunk(2, 1)
            yield name.replace("gate_up_proj", "gate_proj.weight"), gate
            yield name.replace("gate_up_proj", "up_proj.weight"), up
        else:
            yield name + (".weight" if name.endswith("experts.down_proj") else ""), x


def tensors(arch, model):
    c = model.config
    names = gguf.get_tensor_name_map(arch, c.num_hidden_layers)
    tied = c.tie_word_embeddings
    for name, x in separate(model.state_dict()):
        head = name.startswith(("lm_head", "embed_out"))
        if (head and tied) or name.endswith((".inv_freq", ".masked_bias", ".attn.bias", ".attention.bias")):
            continue
        x = x.float().numpy()
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert new, name
        if arch == ARCH.LLAMA and (".attn_q." in new or ".attn_k." in new):
            x = permuted(x, c.num_attention_heads if ".attn_q." in new else c.num_key_value_heads)
        if arch == ARCH.GPTNEOX and ".attn_qkv." in new:
            x = by_part(x, c.num_attention_heads)
        if arch == ARCH.GPT2 and x.ndim == 2 and new.startswith("blk."):
            x = x.T
        if arch in (ARCH.GEMMA, ARCH.GEMMA2, ARCH.GEMMA3) and new.endswith("norm.weight"):
            x = x + 1
        yield new, np.ascontiguousarray(x)
    extra = frequencies(c) if arch == ARCH.LLAMA else None
    if extra is not None:
        yield "rope_freqs.weight", extra


def make(case, kind, to):
    arch, folder = cases[case], os.path.join(here, "folders", case)
    model = hf.AutoModelForCausalLM.from_pretrained(folder)
    writer = gguf.GGUFWriter(to, gguf.MODEL_ARCH_NAMES[arch])
    writer.add_name(case)
    writer.add_file_type({"f32": 0, "f16": 1, "q8_0": 7}[kind])
    writer.add_quantization_version(2)
    writer.add_tokenizer_model("none")
    fields(writer, arch, model.config)
    for name, x in tensors(arch, model):
        if x.ndim == 1 or "norm" in name or name == "position_embd.weight" or "ffn_gate_inp" in name:
            how = TYPES["f32"]
        else:
            how = TYPES["f16"] if kind == "q8_0" and x.shape[-1] % 32 else TYPES[kind]
        writer.add_tensor(name, gguf.quants.quantize(x, how), raw_dtype=how)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


os.makedirs(os.path.join(here, "exports"), exist_ok=True)
for case in sys.argv[1:] or cases:
    with open(os.path.join(here, "exports", case), "w") as out:
        for kind in TYPES:
            make(case, kind, "/tmp/export.gguf")
            for line in lines("/tmp/export.gguf"):
                out.write(f"{kind} {line}\n")
