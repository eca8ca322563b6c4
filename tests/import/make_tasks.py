"""Writes Hugging Face folders of small random models with a head for a task, and what transformers computes by them: for
each case below tasks/CASE/ with config.json and safetensors, data/NAME.npy of each input and target of the imported
model, out/NAME.npy of its outputs, losses, one line an update of SGD over all samples, and tuned/NAME.npy, the outputs
after these updates, and define, if it needs options -D. Needs torch and transformers:
    python3 make_tasks.py [CASE...]
    python3 make_tasks.py load CASE DIR OUTPUTS
`load` loads a folder that `train --save DIR/` wrote: no key is missing or unexpected, and the outputs are those of the
files OUTPUTS/NAME.npy, within 1e-5 of the largest."""
import json
import os
import shutil
import sys

import numpy as np
import torch
import transformers as hf

SAMPLES, LENGTH, VOCAB, UPDATES = 3, 16, 61, 10
RATE, MOMENTUM = 0.05, 0.9
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
here = os.path.dirname(os.path.abspath(__file__))

text = {"vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": LENGTH, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "attn_implementation": "eager"}
vit = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 12,
       "patch_size": 4, "layer_norm_eps": 1e-3, "attn_implementation": "eager"}
t5 = {"vocab_size": VOCAB, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4,
      "relative_attention_num_buckets": 10, "relative_attention_max_distance": 11, "dropout_rate": 0.0,
      "decoder_start_token_id": 0, "attn_implementation": "eager"}
whisper = {"vocab_size": VOCAB, "num_mel_bins": 6, "d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2,
           "encoder_ffn_dim": 20, "decoder_layers": 3, "decoder_attention_heads": 4, "decoder_ffn_dim": 24, "max_source_positions": 10,
           "max_target_positions": 14, "decoder_start_token_id": 5, "pad_token_id": 3, "bos_token_id": 3, "eos_token_id": 4,
           "attn_implementation": "eager"}
roberta = {**text, "max_position_embeddings": LENGTH + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5}


def labels(n):
    return {"num_labels": n}


# ---- data of a task: the model's inputs and targets by name ------------------------------------------


def texts(config):
    """Texts of several lengths with pads behind them; the second part of each has the second type."""
    pad = config.pad_token_id
    tokens = torch.randint(4, VOCAB, (SAMPLES, LENGTH))
    types = torch.zeros_like(tokens)
    for i in range(SAMPLES):
        end = LENGTH - 3 * i
        types[i, end // 2:end] = 1
        tokens[i, end:] = pad
    data = {"tokens": tokens}
    if config.type_vocab_size > 1:
        data["token_types"] = types
    return data


def words(config, classes):
    data = texts(config)
    data["labels"] = torch.where(torch.rand(SAMPLES, LENGTH) < 0.5, torch.randint(0, classes, (SAMPLES, LENGTH)), -100)
    data["labels"][data["tokens"] == config.pad_token_id] = -100
    return data


def masked(config):
    data = words(config, VOCAB)
    data["words"] = data.pop("labels")
    return data


def scattered(config):
    """Pads before, between and behind words, all with a loss: the pad's vectors get no gradient."""
    data = masked(config)
    data["tokens"] = torch.randint(4, VOCAB, (SAMPLES, LENGTH))
    for sample, pads in enumerate(([0, 1, 2], [0, 5, 6, 11], [14, 15])):
        data["tokens"][sample, pads] = config.pad_token_id
    data["words"] = torch.randint(0, VOCAB, (SAMPLES, LENGTH))
    return data


def tagged(config):
    data = words(config, config.num_labels)
    data["label"] = data.pop("labels")
    return data


def classes(config):
    return {**texts(config), "label": torch.randint(0, config.num_labels, (SAMPLES, 1))}


def scores(config):
    return {**texts(config), "label": torch.randn(SAMPLES, config.num_labels)}


def tags(config):
    return {**texts(config), "label": torch.randint(0, 2, (SAMPLES, config.num_labels)).float()}


def images(config):
    return {"image": torch.rand(SAMPLES, config.num_channels, config.image_size, config.image_size)}


def pictures(config):
    return {**images(config), "label": torch.randint(0, config.num_labels, (SAMPLES, 1))}


def translated(config):
    """Sources and targets of several lengths that end in the token 1, with pads behind it."""
    data = {"source": torch.randint(2, VOCAB, (SAMPLES, LENGTH)), "next": torch.randint(2, VOCAB, (SAMPLES, LENGTH - 4))}
    for of, cut in (("source", 3), ("next", 2)):
        for i in range(SAMPLES):
            end = data[of].shape[1] - cut * i
            data[of][i, end - 1] = 1
            data[of][i, end:] = config.pad_token_id
    return data


def spoken(config):
    """Some last positions have no loss. The padding's token stands before them: no gradient for its row."""
    data = {"features": torch.randn(SAMPLES, config.num_mel_bins, 2 * config.max_source_positions),
            "next": torch.randint(6, VOCAB, (SAMPLES, config.max_target_positions))}
    data["next"][:, 1] = config.pad_token_id
    data["next"][1:, -1] = -100
    return data


# ---- values of transformers ------------------------------------------------------------------


def arguments(config, data):
    given = {}
    if "image" in data:
        n = data["image"].shape[1]
        mean, std = (torch.tensor(x[:n]).reshape(n, 1, 1) for x in (MEAN, STD))
        given["pixel_values"] = (data["image"] - mean) / std
    if "features" in data:
        given = {"input_features": data["features"], "labels": data["next"]}
    if "source" in data:
        given = {"input_ids": data["source"], "attention_mask": (data["source"] != config.pad_token_id).long(),
                 "labels": torch.where(data["next"] == config.pad_token_id, -100, data["next"])}
    for name, to in (("tokens", "input_ids"), ("token_types", "token_type_ids"), ("words", "labels"), ("label", "labels")):
        if name in data:
            given[to] = data[name]
    if "tokens" in data:
        given["attention_mask"] = (data["tokens"] != config.pad_token_id).long()
    if "labels" in given and given["labels"].shape[1:] == (1,):
        given["labels"] = given["labels"][:, 0]
    return given


def outputs(result):
    if hasattr(result, "logits"):
        return {"logits": result.logits}
    return {"hidden": result.last_hidden_state, "pooled": result.pooler_output}


# ---- cases: configuration, model, options, data ----------------------------------------------------

cases = {
    "bert_masked": (hf.BertConfig, hf.BertForMaskedLM, text, masked),
    "bert_untied": (hf.BertConfig, hf.BertForMaskedLM,
                    {**text, "tie_word_embeddings": False, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3,
                     "pad_token_id": 3}, masked),
    "bert_classes": (hf.BertConfig, hf.BertForSequenceClassification, {**text, **labels(3)}, classes),
    "bert_score": (hf.BertConfig, hf.BertForSequenceClassification, {**text, **labels(1), "hidden_act": "relu"}, scores),
    "bert_tags": (hf.BertConfig, hf.BertForSequenceClassification,
                  {**text, **labels(4), "problem_type": "multi_label_classification"}, tags),
    "bert_words": (hf.BertConfig, hf.BertForTokenClassification, {**text, **labels(5)}, tagged),
    "bert_padded": (hf.BertConfig, hf.BertForMaskedLM, {**text, "pad_token_id": 2}, scattered),
    "bert_encoder": (hf.BertConfig, hf.BertModel, text, texts),
    "roberta_masked": (hf.RobertaConfig, hf.RobertaForMaskedLM, roberta, masked),
    "roberta_untied": (hf.RobertaConfig, hf.RobertaForMaskedLM,
                       {**roberta, "tie_word_embeddings": False, "type_vocab_size": 2}, masked),
    "roberta_padded": (hf.RobertaConfig, hf.RobertaForMaskedLM, roberta, scattered),
    "roberta_classes": (hf.RobertaConfig, hf.RobertaForSequenceClassification, {**roberta, **labels(3)}, classes),
    "t5": (hf.T5Config, hf.T5ForConditionalGeneration, t5, translated),
    "t5_gated": (hf.T5Config, hf.T5ForConditionalGeneration,
                 {**t5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, translated),
    "t5_untied": (hf.T5Config, hf.T5ForConditionalGeneration,
                  {**t5, "feed_forward_proj": "gated-silu", "tie_word_embeddings": False, "num_decoder_layers": 1}, translated),
    "vit_classes": (hf.ViTConfig, hf.ViTForImageClassification, {**vit, **labels(3)}, pictures),
    "vit_grey": (hf.ViTConfig, hf.ViTForImageClassification,
                 {**vit, **labels(4), "num_channels": 1, "qkv_bias": False, "hidden_act": "gelu_pytorch_tanh"}, pictures),
    "vit_encoder": (hf.ViTConfig, hf.ViTModel, {**vit, "pooler_output_size": 10}, images),
    "whisper": (hf.WhisperConfig, hf.WhisperForConditionalGeneration, whisper, spoken),
    "whisper_untied": (hf.WhisperConfig, hf.WhisperForConditionalGeneration,
                       {**whisper, "activation_function": "relu", "tie_word_embeddings": False}, spoken),
    "roberta_words": (hf.RobertaConfig, hf.RobertaForTokenClassification, {**roberta, **labels(3)}, tagged),
}


def randomise(model, deviation):
    """Gains around 1; all large enough for every term to count."""
    for name, p in model.named_parameters():
        gain = p.dim() == 1 and name.endswith("weight")
        torch.nn.init.normal_(p, 1.0 if gain else 0.0, 0.2 if p.dim() == 1 else deviation)


def saved(folder, arrays):
    os.mkdir(folder)
    for name, x in arrays.items():
        x = x.numpy()
        np.save(os.path.join(folder, name + ".npy"), x.astype(np.float32 if x.dtype.kind == "f" else np.int32))


def losses(model, given):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    for _ in range(UPDATES):
        loss = model(**given).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def untied(model):
    """With a head of its own, as published T5 1.1 and Flan-T5 have it. transformers 5 ties heads that it creates."""
    model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))


def say_untied(folder):
    """config.json as T5 1.1's, of transformers 4."""
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    config["tie_word_embeddings"] = False
    del config["scale_decoder_outputs"]
    with open(path, "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")


def make(name):
    of_config, of_model, options, data_of = cases[name]
    torch.manual_seed(1)
    model = of_model(of_config(**options))
    if name == "t5_untied":
        untied(model)
    randomise(model, 0.15 if name.startswith(("t5", "bert_untied", "whisper")) else 0.3)
    model.eval()
    folder = os.path.join(here, "tasks", name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    if name == "t5_untied":
        say_untied(folder)
    data = data_of(model.config)
    if name.startswith("t5"):
        with open(os.path.join(folder, "define"), "w") as out:
            out.write(f"-D n_source={LENGTH} -D n_target={LENGTH - 4}\n")
    if "image" in data:
        n = model.config.num_channels
        processor = hf.ViTImageProcessor(image_mean=MEAN[:n], image_std=STD[:n], size={"height": 12, "width": 12})
        processor.save_pretrained(folder)
    given = arguments(model.config, data)
    saved(os.path.join(folder, "data"), data)
    with torch.no_grad():
        saved(os.path.join(folder, "out"), outputs(model(**given)))
    if "labels" not in given:
        return
    with open(os.path.join(folder, "losses"), "w") as out:
        out.writelines(f"{loss:.9g}\n" for loss in losses(model, given))
    with torch.no_grad():
        saved(os.path.join(folder, "tuned"), outputs(model(**given)))


def given_of(name):
    """The model's arguments by the files of a case."""
    of_data = os.path.join(here, "tasks", name, "data")
    data = {f[:-4]: torch.tensor(np.load(os.path.join(of_data, f))) for f in os.listdir(of_data)}
    data = {k: x if x.is_floating_point() else x.long() for k, x in data.items()}
    return arguments(cases[name][0].from_pretrained(os.path.join(here, "tasks", name)), data)


def load(name, folder, wanted):
    _, of_model, _, _ = cases[name]
    model, info = of_model.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    for what, keys in info.items():
        if keys:
            sys.exit(f"{folder}: {what}: {keys}")
    with torch.no_grad():
        for output, x in outputs(model.eval()(**given_of(name))).items():
            want = np.load(os.path.join(wanted, output + ".npy")).reshape(x.shape)
            worst = np.abs(x.numpy() - want).max() / np.abs(want).max()
            print(f"{folder}: {output}: worst {worst:.2e}")
            if worst > 1e-5:
                sys.exit(1)


torch.set_num_threads(1)
if __name__ == "__main__":
    if sys.argv[1:2] == ["load"]:
        load(*sys.argv[2:])
    else:
        for case in sys.argv[1:] or cases:
            make(case)
