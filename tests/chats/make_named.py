"""Writes what transformers makes of chats by published templates, for pdc's own templates of the same formats.

  python make_named.py LLAMA_CPP AXOLOTL        (transformers 5.24; in this folder)

Two packages of PyPI hold the published templates; unpack them with tar and unzip:
  LLAMA_CPP: vendor/llama.cpp of the sources of llama-cpp-python 0.3.36
  AXOLOTL: axolotl/utils/chat_templates/templates of axolotl 0.19.0
named.cases: JSON lines of the name of pdc's template, the model whose template transformers applied, messages,
add_generation_prompt, and the text. Chats that the published template refuses are left out.
"""
import json
import os
import re
import sys

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

# pdc's name; the model; a text in llama.cpp's tests/test-chat-template.cpp, a file of llama.cpp or of axolotl; cases
ALL, SERVED, UNTIL_USER = range(3)
SOURCES = [
    ("chatml", "teknium/OpenHermes-2.5-Mistral-7B", "test", ALL),
    ("gemma", "google/gemma-2-2b-it", "llama.cpp", ALL),
    ("gemma", "google/gemma-3-4b-it", "gemma3", ALL),
    ("llama3", "meta-llama/Meta-Llama-3-8B-Instruct", "llama3", ALL),
    ("mistral", "mistralai/Mistral-7B-Instruct-v0.2 (mistralai 'v1' template with a system prompt)", "test", ALL),
    # they add the system's text to the last message alone, or lose it where that is the assistant's
    ("mistral-v3", "mistralai/Mistral-7B-Instruct-v0.3", "mistral_v2v3", UNTIL_USER),
    ("mistral-tekken", "mistralai/Mistral-Nemo-Instruct-2407", "llama.cpp", UNTIL_USER),
    ("phi3", "microsoft/Phi-3.5-mini-instruct", "llama.cpp", ALL),
    # it begins the assistant's turn behind each message of the user, with add_generation_prompt and without
    ("phi4", "phi-4", "test", SERVED),
]
CHATS = [
    [("system", "You are brief."), ("user", "Hello"), ("assistant", "Hi there"), ("user", "Who are you"),
     ("assistant", "   I am an assistant   "), ("user", "Another question")],
    [("user", "2 + 2?")],
    [("system", "S"), ("user", "U")],
    [("system", " \n padded\t "), ("user", "\n\n  a  b \n"), ("assistant", "\n  x\n\ny  \n")],
    [("user", "Wie geht's, Übermut? 日本語 😀"), ("assistant", "Gut – naïve\u00a0"), ("user", "\u2003und\u3000")],
    [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "e"), ("assistant", "f")],
    [("user", ""), ("assistant", "")],
    [("system", ""), ("user", "the system says nothing"), ("assistant", "no")],
    [("user", "{{ x }} {% if y %} {# z #} \\n </s><|im_end|><|eot_id|>[/INST]"), ("assistant", "<end_of_turn>\n```c\n  {}\n```")],
]


def published(model, source, llama_cpp, axolotl):
    if source == "test":
        with open(f"{llama_cpp}/tests/test-chat-template.cpp") as f:
            found = re.search(r'/\* \.name= \*/ "' + re.escape(model) + r'",\n +/\* \.template_str= \*/ ("(?:[^"\\\n]|\\.)*"),\n', f.read())
        return json.loads(found[1].replace("\\'", "'"))
    path = f"{llama_cpp}/models/templates/{model.replace('/', '-')}.jinja" if source == "llama.cpp" else f"{axolotl}/{source}.jinja"
    with open(path) as f:
        return f.read()


def main(llama_cpp, axolotl):
    t = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>")
    with open("named.cases", "w") as f:
        for name, model, source, cases in SOURCES:
            t.chat_template, n = published(model, source, llama_cpp, axolotl), 0
            for chat in CHATS:
                messages = [{"role": r, "content": c} for r, c in chat]
                for prompt in (False, True):
                    if cases == SERVED and prompt != (chat[-1][0] == "user"):
                        continue
                    if cases == UNTIL_USER and chat[0][0] == "system" and len(chat) > 2:
                        continue
                    try:
                        text = t.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
                    except Exception as e:
                        print(f"{model} refuses: {e}")
                        continue
                    case = {"name": name, "model": model.split(" ")[0], "messages": messages, "add_generation_prompt": prompt,
                            "bos_token": "<s>", "eos_token": "</s>", "text": text}
                    f.write(json.dumps(case, ensure_ascii=False) + "\n")
                    n += 1
            print(f"{name}: {n} texts by the template of {model}")


if __name__ == "__main__":
    paths = [os.path.abspath(p) for p in sys.argv[1:]]
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    main(*paths)
