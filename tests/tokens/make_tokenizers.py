"""Trains small tokenizers of every kind that the runtime reads, and writes what PyPI's tokenizers makes of difficult texts.

  python make_tokenizers.py [NAME...]      (tokenizers 0.23; in this folder; default: all)

texts: a text a line, its UTF-8 in hexadecimal. NAME.json, or gpt2.vocab.json and gpt2.merges.txt: a tokenizer. NAME.cases: of
each text its tokens without those before every text, a tab, and what these decode to: "=" the text, or hexadecimal.
random.parts: texts of which random texts consist. random.cases: for each tokenizer a hash of the tokens of each hundred of
6000 random texts.
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
CASES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = TEKKEN.replace("]+|[^", f"]+{CASES}|[^").replace("]*|\\p{N}|", f"]*{CASES}|\\p{{N}}{{1,3}}|")
GPT4 = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
# DeepSeek LLM and V2: letters with case, as ranges
CASED = ("A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
         "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
         "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
         "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
         "\u1fb6-\u1fbc\u1fbe\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134"
         "\u2c00-\u2c7b\ua640-\ua66d\ua680-\ua69b\ufb00-\ufb06\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f")
DEEPSEEK2 = ["[\r\n]", f"\\s?[{CASED}]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$",
             "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
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


def isolated(patterns, *behind):
    """Splits within the words of earlier splits."""
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns] + list(behind) +
                                              [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
                      ["<|endoftext|>"])


def removed(pattern):
    """Only matches are words."""
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "removed", invert=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
                      ["<|endoftext|>"])


def merged(pattern, behavior):
    return byte_level(pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, behavior),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
                      ["<|endoftext|>"])


def gemma():
    return sentencepiece([normalizers.Replace(" ", "\u2581")],
                         decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]),
                         pre_tokenizers.Split(" ", "merged_with_previous"))


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


# Parts of random texts: those at which expressions differ, and words of the vocabularies.
PARTS = (list("aAbBcxyzsStTdDmMlLrReEvVkKfo'  \t\r\n/.,!?()-+$|[]{}_0123456789") + ["''", "\n\n", "   ", "the", "ing", " don't", "Übermut"] +
         list("éÉßſKǅʰªЯя漢字あアー。、，가힣١٢½Ⅷ€→≠👍😀\u0301\u093f\u3099\u0e33\u200d\ufe0f\u00a0\u2003\u3000\u0085\u200b\u1c89\u0640\u0378"
              "\ue000\U000104a3\U00010d40\u2581"))
RANDOM_TEXTS, BLOCK = 6000, 100


def random_texts():
    """As in tokenizers.c."""
    state, mask = 88172645463325252, (1 << 64) - 1

    def below(n):
        nonlocal state
        state ^= state << 13 & mask
        state ^= state >> 7
        state ^= state << 17 & mask
        return (state >> 11) % n

    for _ in range(RANDOM_TEXTS):
        length, kinds = (1, 2, 3, 5, 8, 20, 50, 120)[below(8)], (2, 4, 8, len(PARTS))[below(4)]
        chosen = [PARTS[below(len(PARTS))] for _ in range(kinds)]
        yield "".join(chosen[below(kinds)] for _ in range(length))


def random_hashes(t):
    hashes, h = [], 0
    for i, text in enumerate(random_texts()):
        if i % BLOCK == 0:
            h = 0xCBF29CE484222325
        for token in t.encode(text, add_special_tokens=False).ids + [0xFFFFFFFF]:
            h = (h ^ token) * 0x100000001B3 & (1 << 64) - 1
        if i % BLOCK == BLOCK - 1:
            hashes.append(f"{h:016x}")
    return " ".join(hashes)


def write_random(tokenizers):
    cases = {}
    if os.path.exists("random.cases"):
        with open("random.cases") as old:
            cases = dict(line.rstrip("\n").split(" ", 1) for line in old)
    cases.update({name: random_hashes(t) for name, t in tokenizers.items()})
    with open("random.parts", "w") as out:
        out.writelines(part.encode().hex() + "\n" for part in PARTS)
    with open("random.cases", "w") as out:
        out.writelines(f"{name} {hashes}\n" for name, hashes in sorted(cases.items()))


def all_tokenizers():
    return {
        "gpt2": gpt2, "prefixed": prefixed, "llama3": lambda: split(LLAMA3, ignore_merges=True),
        "qwen2": lambda: split(LLAMA3.replace("{1,3}", "")), "digits": digits, "llama2": llama2,
        "o200k": lambda: removed(O200K), "gpt4": lambda: removed(GPT4), "tekken": lambda: split(TEKKEN, ignore_merges=True),
        "deepseek": lambda: isolated(DEEPSEEK),
        "deepseek2": lambda: isolated(DEEPSEEK2, pre_tokenizers.Digits(individual_digits=True)), "gemma": gemma,
        "previous": lambda: merged(Regex(r"\s|\p{P}+"), "merged_with_previous"),
        "next": lambda: merged(Regex(r"\s|\p{P}+"), "merged_with_next"), "contiguous": lambda: merged("e", "contiguous"),
        "first": lambda: metaspace("first", False), "never": lambda: metaspace("never", True), "always": metaspace_decoded,
        "unknown": unknown, "composed": composed, "bert": wordpiece,
        "bert_cased": lambda: wordpiece(lowercase=False, clean_text=False),
        "t5": lambda: unigram([normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "\u2581")],
                              pre_tokenizers.Metaspace("\u2581", "always")),
        "t5_split": lambda: unigram([], pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                                                 pre_tokenizers.Metaspace("\u2581", "always")])),
        "t5_bytes": lambda: unigram([], pre_tokenizers.Metaspace("\u2581", "always"), byte_fallback=True)}


os.chdir(os.path.dirname(os.path.abspath(__file__)))
with open("texts", "w") as out:
    out.writelines(text.encode().hex() + "\n" for text in TEXTS)
made = {name: make() for name, make in all_tokenizers().items() if name in (sys.argv[1:] or all_tokenizers())}
for name, t in made.items():
    if name == "gpt2":
        t.model.save(".", "gpt2")
        os.rename("gpt2-vocab.json", "gpt2.vocab.json")
        os.rename("gpt2-merges.txt", "gpt2.merges.txt")
    else:
        t.save(f"{name}.json", pretty=False)
    write_cases(name, t)
write_random(made)
