"""Writes what transformers makes of chats: texts of templates, tokens, masks, rows, and losses of a small Llama.

  python make_chats.py        (transformers 5.24, tokenizers 0.23, torch; in this folder)

templates.cases: JSON lines of a template, its variables, and the text with the spans of its generation blocks in bytes, or
"fails". tokenizer/: a small tokenizer with a chat template. chats.jsonl: lines of every kind. rows.json: the arrays of
pdc tokenize by options, with masks from transformers or from growing prefixes. marks.json: tokens at places of texts, for tokenizers of ../tokens. llama.init.safetensors, llama.loss: the
weights of a Llama and the losses of ten updates on the rows of rows.json's "packed"; llama.apart.loss: those of its
samples one by one; llama.padded.loss: those of a row for each sample, with transformers' mask of attention; gpt2.*: the same of a GPT-2.
"""
import copy
import json
import os

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import _compile_jinja_template, _render_with_assistant_indices

# ---- templates ------------------------------------------------------------------------------------------

TURNS = [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Wie geht's, Übermut?"},
         {"role": "assistant", "content": "Gut – 日本語 😀\n"}, {"role": "user", "content": "2 + 2"},
         {"role": "assistant", "content": "<think>\nsum\n</think>\n\n4", "tool_calls": None}]
TOOL = {"type": "function", "function": {"name": "add", "description": "a \"sum\" <b> & \\ \t\u00e9\u0001\u007f",
                                         "parameters": {"type": "object", "properties": {"x": {"type": "number"}},
                                                        "Z": [], "a": {}, "m": [1, 2.5, 1e22, 1e-7, None, True, -0.0, 100.0]}}}
VARIABLES = {"messages": TURNS, "tools": [TOOL], "empty": [], "text": "  a,b,,c  ", "number": 7, "real": 2.5, "nothing": None,
             "yes": True, "dict": {"b": 1, "A": [1, "it's", {"q": 'say "x"\n'}], "items": "member"}, "bos_token": "<s>",
             "eos_token": "</s>", "unicode": "  \u00a0\u3000é\u2003", "list": ["x", "y", "z"],
             "large": [2**63, -2**63 - 1, 10**30, -10**30, 1e19, float(2**63)]}
SNIPPETS = [
    # statements and whitespace control
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n\n", "{%- if yes -%}  x  {%- else -%} y {%- endif %} z", "  {%+ if yes %}x{% endif +%}\n  y",
    "a {#- gone -#} b {# gone #}\nc\n  {# line #}\nd", "{{ 1 -}}   \n  {{- 2 }}\n{{ 3 }}\n\n", "x\r\ny\r{{ 'a\r\nb' }}",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
    "{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem.role if loop.previtem }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for x in empty %}x{% else %}none{% endfor %}{% for c in 'aé😀' %}{{ c }}.{% endfor %}{% for k in dict %}{{ k }}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}:{{ m.content }}{% if not loop.last %}|{% endif %}{% endfor %}",
    "{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in dict | items %}{{ k }}{% endfor %}",
    "{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% set x = 1 %}{% for i in list %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if yes %}{% set x = 3 %}{% endif %}{{ x }}",
    "{% set ns = namespace(n=0, found=false) %}{% for i in list %}{% set ns.n = ns.n + loop.index %}{% set ns.found = true %}{% endfor %}{{ ns.n }}{{ ns.found }}",
    "{% set block %}\n a {{ number }}\n{% endset %}[{{ block }}]", "{% set a = 'x', 'y' %}{{ a[1] }}{{ a | length }}",
    "{% macro f(x, y='d', z=none) %}({{ x }}{{ y }}{{ z }}{{ number }}){% endmacro %}{{ f(1) }}{{ f(1, z=3) }}{{ f(1, 2) | length }}{{ f() }}",
    "{% macro down(n) %}{{ n }}{% if n > 0 %}{{ down(n - 1) }}{% endif %}{% endmacro %}{{ down(4) }}",
    "{% for m in messages %}{% if m.role == 'assistant' %}[{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}]{% else %}{{ m.content }}{% endif %}\n{% endfor %}",
    # expressions
    "{{ 1 + 2 * 3 - 4 // 3 % 2 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ 2 - -1 }} {{ 1.0 }} {{ 1e3 if false else 10.25 }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 2.0 ~ missing }} {{ 'a' + 'b' * 3 }} {{ [1] + [2, 'x'] }} {{ 'x' 'y' }}",
    "{{ 1 < 2 < 3 }} {{ 3 > 2 >= 2 != 5 }} {{ 'a' < 'b' }} {{ 1 == 1.0 == true }} {{ 'a' == nothing }} {{ list == ['x', 'y', 'z'] }}",
    "{{ 'x' in list }} {{ 'q' not in list }} {{ 'b' in dict }} {{ 'geht' in messages[1].content }} {{ 1 in missing }}",
    "{{ nothing or 'or' }} {{ 0 and 1 }} {{ 'a' and 'b' }} {{ not yes or not nothing }} {{ not not number }}",
    "{{ 'a' if yes else 'b' }} {{ 'a' if nothing }}|{{ 'a' if nothing else 'b' if nothing else 'c' }}",
    "{{ list[0] }}{{ list[-1] }}{{ list[1:] }}{{ list[:1] }}{{ list[::-1] }}{{ list[-2:] }}{{ list[5:] }}{{ list[9] }}{{ 'héllo'[1:3] }}{{ 'héllo'[-1] }}{{ messages[1:][0].role }}{{ list[::-1][0] }}",
    "{{ dict.b }}{{ dict['b'] }}{{ dict['items'] }}{{ dict.missing }}{{ dict.get('b') }}{{ dict.get('q') }}{{ dict.get('q', 'd') }}{{ dict.keys() | list }}{{ dict.values() | list | length }}",
    "{{ {'a': 1, 'b': [2, {'c': none}]} }} {{ ('a', 'b') | join }} {{ [] }} {{ {} }} {{ [1, 2.0, true, none, 'q\\'s \"', \"it's\"] }}",
    "{{ 'a\\n\\t\\x41\\u00e9\\'\\\"\\\\\\q' }} {{ \"d'q\" }} {{ '%}' }} {{ '}}' }}", "{{ dict(a=1, b='x') }} {{ range(3) | list }} {{ range(1, 8, 3) | list }} {{ range(3, 0, -1) | list }}",
    # filters, tests, methods
    "[{{ text | trim }}][{{ unicode | trim }}][{{ 'xxaxx' | trim('x') }}]{{ text | length }}{{ dict | length }}{{ 'é😀' | count }}{{ missing | length }}",
    "{{ tools | tojson }}\n{{ tools[0] | tojson(indent=4) }}\n{{ 'é\\u2028/<' | tojson }}{{ [] | tojson(indent=2) }}{{ 1.0 | tojson }}",
    "{{ dict | tojson(sort_keys=true) }}{{ dict | tojson(separators=(',', ':')) }}{{ 'é😀' | tojson(ensure_ascii=true) }}",
    "{{ 'aBc' | upper }}{{ 'aBc' | lower }}{{ 'aBc' | capitalize }}{{ 'a'.upper() }}{{ 'B'.lower() }}{{ 'user'.capitalize() }}",
    "{{ missing | default('d') }}{{ nothing | default('d') }}{{ nothing | default('d', true) }}{{ missing | d }}|{{ '' | default('e', boolean=true) }}",
    "{{ list | join(', ') }}{{ messages | join('/', attribute='role') }}{{ [1, 2.5, none] | join('-') }}{{ list | first }}{{ list | last }}{{ 'ab' | list }}{{ list | reverse | list }}{{ empty | first }}",
    "{{ messages | map(attribute='role') | list }}{{ list | map('upper') | join }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='role') | join(',') }}{{ [1, 2, 3] | select('odd') | list }}{{ [0, 1] | select | list }}{{ list | reject('equalto', 'y') | join }}",
    "{{ dict | dictsort }}{% for k, v in dict | dictsort %}{{ k }}{% endfor %}{{ 5 | string }}{{ ' x ' | string | trim | safe }}{{ '12' | int }}{{ 'x' | int }}{{ 2.9 | int }}{{ 'x' | int(5) }}",
    "{{ text | replace(',', ';') }}{{ text.replace(',', '', 1) }}{{ 'aaa'.replace('a', 'b', 2) }}{{ 'aXbX'.split('X') }}{{ ' a  b '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'a'.split('</think>')[-1] }}",
    "[{{ text.strip() }}][{{ text.lstrip() }}][{{ text.rstrip() }}][{{ '\\n\\nx\\n'.strip('\\n') }}]{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abcb'.find('b') }}{{ 'abcb'.count('b') }}{{ ','.join(list) }}{{ 'a\\nb\\n'.splitlines() }}",
    "{{ yes is true }}{{ number is number }}{{ real is float }}{{ number is integer }}{{ true is integer }}{{ text is string }}{{ dict is mapping }}{{ list is mapping }}{{ list is sequence }}{{ text is iterable }}{{ number is iterable }}",
    "{{ missing is defined }}{{ missing is undefined }}{{ nothing is none }}{{ nothing is not none }}{{ nothing is defined }}{{ messages[0].tool_calls is defined }}{{ 4 is even }}{{ 4 is divisibleby 2 }}{{ 1 is equalto 1 }}{{ 'x' is in list }}{{ yes is boolean }}{{ yes is false }}{{ missing is iterable }}{{ missing is not string }}",
    "{{ messages[0].content | trim + '!' }}{{ ('a' ~ 'b') | upper }}{{ -3 | string }}{{ not missing is defined }}{{ number in [7, 8] and 'x' or 'y' }}{{ messages[1]['content'][:3] + '…' }}",
    "{{ nothing | selectattr('a') | list }}{{ nothing | map('upper') | list }}{{ 0 | reject | list }}{{ '' | select | list }}",
    "{{ number | select | list }}", "{{ yes | map('upper') | list }}",
    # whole numbers of more than 63 bits
    "{{ large }} {{ large | tojson }} {{ large[2] ~ 'x' }} {{ large[0] | string | length }} {{ large[2] | int }} {{ large[0] is number }}{{ large[0] is integer }}{{ large[0] is float }}",
    "{% for a in large %}{% for b in large + [1, -1.5, true] %}{{ a < b }}{{ a == b }}{{ b >= a }} {% endfor %}{% endfor %}{{ large[3] in large }}{{ 1 if large[1] else 2 }}",
    "{% for x in list %}{% for y in list %}{{ loop.depth }}{{ loop.depth0 }}{{ loop['depth'] }}{% endfor %}{% endfor %}{{ 1e308 * 10 }} {{ (-1e308 * 10) | tojson }} {{ (1e308 * 10 - 1e308 * 10) | tojson }}",
    # failures in both
    "{{ missing.member }}", "{{ nothing + 'a' }}", "{{ 'a' + 1 }}", "{{ 1 / 0 }}", "{{ raise_exception('no') }}", "{{ missing() }}", "{{ [] | tojson | missing_filter }}",
    "{% for x in number %}{% endfor %}", "{{ number < 'a' }}", "{{ missing | tojson }}", "{% if %}", "{% for x in %}{% endfor %}", "{{ 'a }}", "{% endif %}", "{{ nothing.strip() }}", "{{ 1 in 'a' }}",
]
TEMPLATES = {
    "chatml": "{%- for m in messages %}\n{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}\n{%- endfor %}\n"
              "{%- if add_generation_prompt %}\n{{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n",
    # the thoughts of earlier turns are left out
    "thinking": "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
                "{% for m in messages %}{% set c = m.content %}{% if m.role == 'assistant' %}{% set c = c.split('</think>')[-1].lstrip('\\n') %}"
                "{% if loop.index0 > ns.last %}{% set c = '<think>\\n\\n</think>\\n\\n' + c %}{% endif %}{% endif %}"
                "<|im_start|>{{ m.role }}\n{{ c }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    # a text ends the whole
    "ended": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
             "{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}{{ eos_token }}{% endif %}",
    # the prompt opens thoughts, which the whole lacks
    "opened": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
              "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
    "marked": "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\n"
              "{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "plain": "{% for m in messages %}{{ 'Human: ' if m.role == 'user' else 'Bot: ' }}{{ m.content }}{{ eos_token if m.role != 'user' }}\n{% endfor %}",
}


def rendered(template, variables, **more):
    """Text and spans in bytes, or None."""
    try:
        variables = dict(variables, **more)
        text, spans = _render_with_assistant_indices(
            _compile_jinja_template(template), variables.pop("messages"), variables.pop("tools", None), None,
            variables.pop("add_generation_prompt", False), **variables)
    except Exception:
        return None
    return text, [[len(text[:i].encode()) for i in span] for span in spans]


def write_templates():
    with open("templates.cases", "w") as f:
        for template in SNIPPETS + list(TEMPLATES.values()):
            for prompt in (False, True) if template in TEMPLATES.values() else (False,):
                variables = dict(VARIABLES, add_generation_prompt=prompt)
                want = rendered(template, variables)
                case = {"template": template, "context": {**variables, "documents": None}}
                case |= {"text": want[0], "spans": want[1]} if want else {"fails": True}
                if template in SNIPPETS:
                    del case["context"]
                f.write(json.dumps(case, ensure_ascii=False) + "\n")
    with open("templates.context", "w") as f:
        json.dump({**VARIABLES, "add_generation_prompt": False, "documents": None}, f)


# ---- tokens and rows --------------------------------------------------------------------------------------

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<pad>"]


def write_tokenizer():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False), decoders.ByteLevel()
    t.train_from_iterator(["user assistant system the answer is what of and hello " * 4], trainers.BpeTrainer(
        vocab_size=296, special_tokens=[AddedToken(s, special=True) for s in SPECIAL], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    os.makedirs("tokenizer", exist_ok=True)
    t.save("tokenizer/tokenizer.json", pretty=False)
    config = {"eos_token": {"content": "<|endoftext|>"}, "pad_token": "<pad>", "chat_template": TEMPLATES["chatml"]}
    with open("tokenizer/tokenizer_config.json", "w") as f:
        json.dump(config, f, indent=1)
    return PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|endoftext|>", pad_token="<pad>")


LINES = [
    {"messages": [{"role": "system", "content": "You are the answer."}, {"role": "user", "content": "hello?"},
                  {"role": "assistant", "content": "\nhello  and\n\nÜber 😀 "}, {"role": "user", "content": "What is the sum"},
                  {"role": "assistant", "content": "<think>\nof what\n</think>\n\n4\n"}]},
    {"instruction": "Name a colour", "input": "of the sky", "output": "blue"},
    {"instruction": "Say hello", "input": "", "output": "hello", "system": "the system"},
    {"conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "the assistant"}, {"from": "human", "value": "is"}]},
    {"conversations": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
    {"prompt": "what is", "completion": " the answer"},
    {"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
     "completion": [{"role": "assistant", "content": "d and"}]},
    {"text": "hello and the answer is 42"},
    {"messages": [{"role": "user", "content": "without an answer"}]},
]


def messages_of(line):
    if "messages" in line:
        return line["messages"], 0
    if "conversations" in line:
        roles = {"human": "user", "gpt": "assistant"}
        return [{"role": roles[m["from"]], "content": m["value"]} if "from" in m else m for m in line["conversations"]], 0
    if "instruction" in line:
        user = line["instruction"] + ("\n\n" + line["input"] if line["input"] else "")
        system = [{"role": "system", "content": line["system"]}] if "system" in line else []
        return system + [{"role": "user", "content": user}, {"role": "assistant", "content": line["output"]}], 0
    if isinstance(line.get("prompt"), list):
        return line["prompt"] + line["completion"], len(line["prompt"])
    return None, 0


def mask_of(tokens, offsets, begin, end):
    return [b > begin and a < end for a, b in offsets]


def sample(t, line, name, loss_on):
    """Tokens, and which of them count."""
    messages, first = messages_of(line)
    eos = t.eos_token_id
    if messages is None:
        text = line["text"] if "text" in line else line["prompt"] + line["completion"]
        begin = 0 if "text" in line else len(line["prompt"])
        e = t(text, return_offsets_mapping=True, add_special_tokens=False)
        mask = mask_of(e.input_ids, e.offset_mapping, begin, len(text))
        return e.input_ids + [eos], ([True] * (len(mask) + 1) if loss_on == "all" else mask + [True])
    t.chat_template = TEMPLATES[name]
    if name == "marked" and not first:
        e = t.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
        ids, turns = e["input_ids"], None
        mask = [bool(x) for x in e["assistant_masks"]]
        if loss_on == "completion":  # the last run of the mask
            end = max((i for i, x in enumerate(mask) if x), default=-1)
            begin = max((i + 1 for i in range(end) if not mask[i]), default=0)
            mask = [begin <= i <= end for i in range(len(mask))]
    else:
        text = t.apply_chat_template(messages, tokenize=False)
        e = t(text, return_offsets_mapping=True, add_special_tokens=False)
        ids, mask = e.input_ids, [False] * len(e.input_ids)
        turns = [i for i in range(first, len(messages)) if messages[i]["role"] == "assistant"]
        for i in turns[-1:] if loss_on == "completion" else turns:
            begin = len(t.apply_chat_template(messages[:i], tokenize=False, add_generation_prompt=True))
            if name == "opened":
                begin -= 0 if text.startswith("<think>\n", begin - 8) else 8
            upto = t.apply_chat_template(messages[:i + 1], tokenize=False)
            if not text.startswith(upto):  # the turn is rendered in another way in the whole: it ends there with its first end
                upto = text[:text.find("<|im_end|>", begin) + len("<|im_end|>")]
            if upto.rstrip().endswith(tuple(SPECIAL)):
                upto = upto.rstrip()
            mask = [x or y for x, y in zip(mask, mask_of(ids, e.offset_mapping, begin, len(upto)))]
    return ids, [True] * len(ids) if loss_on == "all" else mask


def rows_of(t, name, loss_on, length, pack=False, too_long="error"):
    rows, pad, eos, most_open, sep = [], t.pad_token_id, t.eos_token_id, 64, loss_on == "all"
    open_rows = []
    for line in LINES:
        ids, mask = sample(t, line, name, loss_on)
        mask = [False] + mask[1:]
        if len(ids) > length + 1:
            if too_long == "skip":
                continue
            assert too_long == "truncate"
            ids, mask = ids[:length + 1], mask[:length + 1]
        if not any(mask):
            continue
        if not pack:
            rows.append((ids, mask))
            continue
        if ids[-1] != eos and len(ids) < length + 1:
            ids, mask = ids + [eos], mask + [sep]
        fitting = [r for r in open_rows if len(r[0]) + len(ids) <= length + 1]
        row = max(fitting, key=lambda r: len(r[0])) if fitting else ([], [], [])
        if not fitting:
            open_rows.append(row)
        document = row[2][-1] + 1 if row[2] else 0
        row[0].extend(ids), row[1].extend(mask), row[2].extend([document] * len(ids))
        if len(row[0]) == length + 1:
            rows.append(row)
            open_rows.remove(row)
    assert len(open_rows) < most_open
    arrays = {"tokens": [], "next": []} | ({"documents": [], "positions": []} if pack else {})
    for ids, mask, *documents in rows + open_rows:
        arrays["tokens"].append((ids + [pad] * length)[:length])
        labels = [i if m else -100 for i, m in zip(ids, mask)][1:]
        arrays["next"].append((labels + [-100] * length)[:length])
        if pack:  # the padding is a document of its own
            of = (documents[0] + [documents[0][-1] + 1] * length)[:length]
            arrays["documents"].append(of)
            arrays["positions"].append([i - of.index(of[i]) for i in range(length)])
    return arrays


CASES = {
    "assistant": ("chatml", "assistant", 160, {}), "completion": ("chatml", "completion", 160, {}), "all": ("chatml", "all", 160, {}),
    "thinking": ("thinking", "assistant", 160, {}), "ended": ("ended", "assistant", 160, {}), "opened": ("opened", "assistant", 160, {}), "marked": ("marked", "assistant", 160, {}),
    "marked_last": ("marked", "completion", 160, {}), "plain": ("plain", "assistant", 160, {}),
    "truncated": ("chatml", "assistant", 40, {"too_long": "truncate"}), "skipped": ("chatml", "all", 40, {"too_long": "skip"}),
    "packed": ("chatml", "assistant", 96, {"pack": True, "too_long": "truncate"}), "packed_all": ("chatml", "all", 64, {"pack": True, "too_long": "skip"}),
}


def write_rows(t):
    with open("chats.jsonl", "w") as f:
        for i, line in enumerate(LINES):
            f.write(json.dumps(line, ensure_ascii=i % 2 == 0) + "\n" + ("\n" if i == 3 else ""))
    with open("rows.json", "w") as f:
        f.write("[")
        for i, (case, (name, loss_on, length, more)) in enumerate(CASES.items()):
            arrays = rows_of(t, name, loss_on, length, **more)
            f.write((",\n" if i else "") + json.dumps({"name": case, "template": TEMPLATES[name], "loss_on": loss_on, "length": length,
                                                       "pack": False, "too_long": "error", **more, **arrays}))
        f.write("]\n")


# ---- marks -------------------------------------------------------------------------------------------------

MARKED = ["It's what we've said: they'll go.", "Zwölf Boxkämpfer jagen Viktor", "  a   b\n\nc \t", "私はガラス", "a\U0001f468\u200d\U0001f469b",
          "<s> x</s>y", "<|begin_of_text|>Hello<|eot_id|>\n\nfoo  <|eot_id|>", "1234567890 3.14", "\u00e9\u00e9 na\u00efve"]


def write_marks():
    """At each place between characters: how many tokens end at or before it, and begin before it."""
    with open("marks.json", "w") as f:
        for i, name in enumerate(("llama2", "llama3", "qwen2", "always", "first", "never")):
            t = Tokenizer.from_file(f"../tokens/{name}.json")
            for text in MARKED:
                offsets = t.encode(text, add_special_tokens=False).offsets
                marks = [[len(text[:at].encode()), sum(b <= at for a, b in offsets), sum(a < at for a, b in offsets)]
                         for at in range(len(text) + 1)]
                line = json.dumps({"tokenizer": name, "text": text, "marks": marks}, separators=(",", ":"))
                f.write(("[" if i == 0 and text == MARKED[0] else ",\n") + line)
        f.write("]\n")


# ---- losses ------------------------------------------------------------------------------------------------

UPDATES, PADDED = 10, 160


def updates(model, logits_of, targets):
    """Losses of ten updates, as the models in models/ are trained."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}], lr=1e-2, betas=(0.9, 0.95))
    losses = []
    for _ in range(UPDATES):
        loss = torch.nn.functional.cross_entropy(logits_of(), targets, ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def write_losses(t):
    """Of packed rows, with attention over whole rows, and of each sample by itself; and of padded rows."""
    rows = {k: torch.tensor(x) for k, x in rows_of(t, "chatml", "assistant", 96, pack=True, too_long="truncate").items()}
    padded = {k: torch.tensor(x) for k, x in rows_of(t, "chatml", "assistant", PADDED).items()}
    lengths = [min(len(ids), PADDED) for ids, mask in (sample(t, line, "chatml", "assistant") for line in LINES) if any(mask[1:])]
    seen = (torch.arange(PADDED) < torch.tensor(lengths)[:, None]).long()
    samples = [(r, rows["documents"][r] == n) for r in range(len(rows["tokens"])) for n in rows["documents"][r].unique()]
    llama = LlamaForCausalLM, LlamaConfig(vocab_size=300, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                                          num_key_value_heads=2, max_position_embeddings=96, rms_norm_eps=1e-5, initializer_range=0.2,
                                          tie_word_embeddings=False, attn_implementation="eager")
    gpt2 = GPT2LMHeadModel, GPT2Config(vocab_size=300, n_embd=16, n_layer=2, n_head=4, n_positions=96, initializer_range=0.2,
                                       resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation="eager")
    for name, (kind, config), root in (("llama", llama, "model."), ("gpt2", gpt2, "transformer.")):
        torch.manual_seed(1)
        model = kind(config).train()
        first = copy.deepcopy(model.state_dict())
        save_file({n.removeprefix(root): p.detach().clone() for n, p in model.named_parameters()}, f"{name}.init.safetensors")
        crossing = updates(model, lambda: model(rows["tokens"]).logits.flatten(0, 1), rows["next"].flatten())
        model.load_state_dict(first)
        apart = updates(model, lambda: torch.cat([model(rows["tokens"][r, own][None]).logits[0] for r, own in samples]),
                        torch.cat([rows["next"][r, own] for r, own in samples]))
        kinds = [("apart.loss", apart)]
        if name == "llama":
            model.load_state_dict(first)
            kinds += [("loss", crossing), ("padded.loss", updates(
                model, lambda: model(padded["tokens"], attention_mask=seen).logits.flatten(0, 1), padded["next"].flatten()))]
        for end, losses in kinds:
            with open(f"{name}.{end}", "w") as f:
                f.write("".join(f"{x:.9g}\n" for x in losses))
        print(name, len(samples), "samples:", kinds)


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    write_templates()
    tokenizer = write_tokenizer()
    write_rows(tokenizer)
    write_marks()
    write_losses(tokenizer)
