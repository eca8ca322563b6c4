"""Trains small tokenizers of every kind that the runtime reads, and writes what PyPI's tokenizers makes of difficult texts.

  python make_tokenizers.py        (tokenizers 0.23; in this folder)

texts: a text a line, its UTF-8 in hexadecimal. NAME.json, or gpt2.vocab.json and gpt2.merges.txt: a tokenizer. NAME.cases: of
each text its tokens without those before every text, a tab, and what these decode to: "=" the text, or hexadecimal.
"""
import json
import os
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
from double_array import charsmap  # noqa: E402

LANGUAGES = [
    "The quick brown fox jumps over the lazy dog. It's what we've said: they'll go, I'm sure you'd agree, he's there.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich; Straße, Übermut, Ärger.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë au-delà des îles.",
    "Съешь ещё этих мягких французских булок, да выпей же чаю. Привет, мир!",
    "私はガラスを食べられます。それは私を傷つけません。日本語のテキスト。",
    "我能吞下玻璃而不伤身体。你好,世界!一二三四五。",
    "나는 유리를 먹을 수 있어요. 그래도 아프지 않아요.",
    "أنا قادر على أكل الزجاج و هذا لا يؤلمني. مرحبا بالعالم ١٢٣",
    "मैं काँच खा सकता हूँ और मुझे उससे कोई चोट नहीं पहुंचती. १२३४५",
    "אני יכול לאכול זכוכית וזה לא מזיק לי. ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ",
    "def f(x):\n    return x ** 2 + 1\n\n\nfor i in range(10):\n\tprint(f(i), end='\\n')\n",
    "1 12 123 1234 12345 3.14159 1,000,000 2024-11-05 0x1F 50% $9.99",
]
TEXTS = LANGUAGES + [
    "", " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "\r\n\r\n", "\t\t\tx", "a", " a", "  a", "   a b  c   d    ",
    "trailing   ", "line\n", "line\n\n   \n  next", "a\r\nb\rc\n", " \n \n x", "x \n\n y", "  \t \n\t ",
    "It's IT'S it'S we'VE WE'll i'M I'D don't 'tis 's ' '' 'x '\u017f x'\u017fy", "they're'll'd", "o'clock rock'n'roll",
    "1234567890", "12 345 6789 x12y345", "\u0661\u0662\u0663\u0664 \u00bd\u00b2 \u2167 \u4e00 12\u0663",
    "\U0001f600", "a\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466b \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "\u00a0nbsp\u00a0\u00a0 \u2003em\u2003 \u3000ideographic\u3000\u3000x \u0085next \u200bzero \ufeffbom",
    "e\u0301 cafe\u0301 \u0928\u093f \u0bb2\u0bcb a\u0300\u0301\u0302", "\u2581 \u2581\u2581x\u2581y", "!!! ???... --- ///\n\n//\r\n",
    "<s> </s> <0x41> <0xff> <unk>", "x<|endoftext|>y <|endoftext|> z", "<|begin_of_text|>Hello<|eot_id|>\n\n",
    "<mask> a  <mask>  b<tool>c <tool> d  <mask>", "<|endoftext|><|endoftext|>", "<|endoftext", "\u0000\u0001\u001f\u007f",
    "\u1c89\U00010d40\ua7cb \u0345 \u00aa\u00ba \u02b0 \u3007 \u24b6", "A" * 100, "ab " * 40, " " * 70 + "x", "\u00e9" * 9,
    # composed, put in order, blocked, of one character, never composed; Hangul of parts, and of parts that are none
    "cafe\u0301 \u00e9\u0323 e\u0323\u0301 e\u0301\u0323 a\u0334\u0301 a\u0301\u0300 \u0301e \u212b\u2126 \uf900 \u0958 \u0915\u093c \u2adc",
    "\u09c7\u09be \u09c7x\u09be \u0b95\u0bc6\u0bbe \u1025\u102e \u0cc6\u0cc2\u0cd5 \u1100\u1161\u11a8 \uac00\u11a8 \uac01\u11a8 \u1100x\u1161 \u1100\u11a8 \ud55c\uae00",
    "\u03b1\u0345\u0301\u0313 \u1fc1\u0345 \U0001d15e \U0001109a \U00011099\U000110ba \u304b\u3099 \u0041\u030a\u0328 o\u0302\u0327\u0301",
]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
FALLBACK = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]


def trained(tokenizer, size, special=(), alphabet=()):
    tokenizer.train_from_iterator(LANGUAGES * 3, trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=list(alphabet), show_progress=False))
    return tokenizer


def byte_level(pre_tokenizer, special, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer, t.decoder = pre_tokenizer, decoders.ByteLevel()
    return trained(t, 400, special, BYTES)


def before(token, t):
    return processors.TemplateProcessing(single=f"{token} $A", special_tokens=[(token, t.token_to_id(token))])


def gpt2(prefix=False):
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=prefix), ["<|endoftext|>"])


def prefixed():
    t = gpt2(True)
    t.post_processor = processors.ByteLevel(trim_offsets=True)
    return t


def split(pattern, **model):
    t = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
                   ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], **model)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), before("<|begin_of_text|>", t)])
    return t


def composed():
    """GPT-NeoX's."""
    t = gpt2()
    t.normalizer = normalizers.NFC()
    t.add_tokens([AddedToken("e\u0301\u00e9", normalized=True)])
    return t


def digits():
    """StarCoder's, with added tokens of every kind."""
    t = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                            pre_tokenizers.ByteLevel(add_prefix_space=False)]), ["<|endoftext|>"])
    t.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False), AddedToken("<tool>", rstrip=True),
                  AddedToken("\u00e9\u00e9", normalized=True), AddedToken("<mas", normalized=False)])
    return t


def sentencepiece(steps, decoder, pre_tokenizer=None):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if steps:
        t.normalizer = normalizers.Sequence(steps)
    if pre_tokenizer:
        t.pre_tokenizer = pre_tokenizer
    t.decoder = decoder
    trained(t, 560, FALLBACK)
    # byte tokens are ordinary ones: only the trainer needed them to be special
    raw = json.loads(t.to_str())
    raw["added_tokens"] = raw["added_tokens"][:3]
    t = Tokenizer.from_str(json.dumps(raw))
    t.post_processor = before("<s>", t)
    return t


def llama2():
    return sentencepiece([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")],
                         decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                            decoders.Strip(" ", 1, 0)]))


def metaspace(scheme, split):
    return sentencepiece([], decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                                decoders.Strip(" ", 1, 0)]),
                         pre_tokenizers.Metaspace("\u2581", scheme, split))


def metaspace_decoded():
    return sentencepiece([], decoders.Metaspace("\u2581", "always"), pre_tokenizers.Metaspace("\u2581", "always", True))


def unknown():
    """Without bytes: what training has not seen is <unk>, one for several."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace("\u2581", "always"), decoders.Metaspace("\u2581", "always")
    return trained(t, 420, ["<unk>"])


def wordpiece(**normalizer):
    """BERT's."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(**normalizer), pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece("##", bool(normalizer.get("lowercase", True)))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(LANGUAGES * 3, trainers.WordPieceTrainer(vocab_size=560, special_tokens=special,
                                                                   show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[
        (token, t.token_to_id(token)) for token in ("[CLS]", "[SEP]")])
    return t


def unigram(steps, pre_tokenizer, **model):
    """T5's: with a map of characters to compatible ones."""
    points = [*range(1, 32), *range(0x7F, 0x100), *range(0x2000, 0x2200), *range(0xFF00, 0xFFF0), 0x3000, 0x600, 0xD4E]
    table = {chr(p): unicodedata.normalize("NFKC", chr(p)) for p in points}
    table.update({chr(p): " " for p in (9, 10, 13, 0x200B)} | {chr(p): "" for p in (1, 2, 0x7F)})
    table = {a: b for a, b in table.items() if a != b} | {"e\u0301": "\u00e9", "a\u0301": "\u00e1", "\u0600": "N", "\u0d4e": "M"}
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap(table))] + steps)
    t.pre_tokenizer, t.decoder = pre_tokenizer, decoders.Metaspace("\u2581", "always")
    t.train_from_iterator(LANGUAGES * 3, trainers.UnigramTrainer(
        vocab_size=300, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False))
    if model:
        raw = json.loads(t.to_str())
        raw["model"].update(model)
        raw["model"]["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in range(256)]
        t = Tokenizer.from_str(json.dumps(raw))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return t


def write_cases(name, t):
    with open(f"{name}.cases", "w") as out:
        for text in TEXTS:
            tokens = t.encode(text, add_special_tokens=False).ids
            back = t.decode(tokens, skip_special_tokens=True)
            out.write(f"{' '.join(map(str, tokens))}\t{'=' if back == text else back.encode().hex()}\n")


os.chdir(os.path.dirname(os.path.abspath(__file__)))
with open("texts", "w") as out:
    out.writelines(text.encode().hex() + "\n" for text in TEXTS)
t = gpt2()
t.model.save(".", "gpt2")
os.rename("gpt2-vocab.json", "gpt2.vocab.json")
os.rename("gpt2-merges.txt", "gpt2.merges.txt")
write_cases("gpt2", t)
for name, t in {"prefixed": prefixed(), "llama3": split(LLAMA3, ignore_merges=True),
                "qwen2": split(LLAMA3.replace("{1,3}", "")), "digits": digits(), "llama2": llama2(),
                "first": metaspace("first", False), "never": metaspace("never", True), "always": metaspace_decoded(),
                "unknown": unknown(), "composed": composed(), "bert": wordpiece(),
                "bert_cased": wordpiece(lowercase=False, clean_text=False),
                "t5": unigram([normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "\u2581")],
                              pre_tokenizers.Metaspace("\u2581", "always")),
                "t5_split": unigram([], pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                                                 pre_tokenizers.Metaspace("\u2581", "always")])),
                "t5_bytes": unigram([], pre_tokenizers.Metaspace("\u2581", "always"), byte_fallback=True)}.items():
    t.save(f"{name}.json", pretty=False)
    write_cases(name, t)
