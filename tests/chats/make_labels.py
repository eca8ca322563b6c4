"""Writes small tokenizers of BERT's and RoBERTa's kind, texts with labels, and what transformers makes of them: for each KIND
labels/KIND/tokenizer.json and tokenizer_config.json, labels/texts.jsonl, and labels/KIND.LENGTH.json with the rows of
tokens and token types, cut to LENGTH. Needs transformers and tokenizers:
    python3 make_labels.py"""
import json
import os
import shutil

import transformers as hf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "labels")
lines = [
    {"text": "A film that works.", "label": 1},
    {"text": "Dull, slow and far too long for what it has to say", "label": 0},
    {"text": "A man plays a guitar.", "text_pair": "Someone makes music.", "label": 2},
    {"text": "", "label": 1},
    {"text": "It rains", "text_pair": "The sun shines on the hills, the river and the whole of the town below", "label": 0},
    {"text": "The sun shines on the hills, the river and the whole of the town", "text_pair": "It rains all day, they say", "label": 1},
    {"text": "Naïve café, 100 % [MASK]!", "text_pair": None, "label": 12},
]
words = [w for x in lines for w in (x["text"], x.get("text_pair") or "") if w]
lengths = [64, 12, 7]


def wordpiece():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(words, trainers.WordPieceTrainer(vocab_size=120, special_tokens=special))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return hf.PreTrainedTokenizerFast(tokenizer_object=t, pad_token="[PAD]", sep_token="[SEP]", cls_token="[CLS]",
                                      mask_token="[MASK]", unk_token="[UNK]")


def byte_level():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    t.train_from_iterator(words, trainers.BpeTrainer(vocab_size=330, special_tokens=special,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return hf.PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", sep_token="</s>", cls_token="<s>",
                                      eos_token="</s>", bos_token="<s>", unk_token="<unk>")


shutil.rmtree(here, ignore_errors=True)
os.mkdir(here)
with open(os.path.join(here, "texts.jsonl"), "w") as out:
    out.writelines(json.dumps(x, ensure_ascii=False) + "\n" for x in lines)
for kind, tokenizer in (("bert", wordpiece()), ("roberta", byte_level())):
    tokenizer.save_pretrained(os.path.join(here, kind))
    for length in lengths:
        rows = []
        for x in lines:
            got = tokenizer(x["text"], x.get("text_pair"), truncation="longest_first", max_length=length,
                            padding="max_length", return_token_type_ids=True)
            rows.append([got["input_ids"], got["token_type_ids"] if kind == "bert" else [0] * length, x["label"]])
        with open(os.path.join(here, f"{kind}.{length}.json"), "w") as out:
            json.dump(rows, out)
            out.write("\n")
