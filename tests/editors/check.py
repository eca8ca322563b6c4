"""The words that tools/editors colours are those of the grammar, and what is coloured how in a model.

VS Code's patterns are tried here, as its editor tries them: at each place the first that matches. Vim's file is tried by a Vim,
where one is installed."""
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
EDITORS = TOP / "tools/editors"

keywords = set(re.findall(r'^"([a-z]+)" ', (TOP / "grammar/pdm.l").read_text(), re.M))
assert len(keywords) == 22, sorted(keywords)
units = {u.removesuffix("/s") for u in re.findall(r'\{"([A-Za-z/]+)", "[a-z/]+", ', (TOP / "compiler/base/units.c").read_text())}
expression = (TOP / "compiler/elaborate/expression.c").read_text()
constants = set(re.findall(r'"([a-z_]+)"', re.search(r"words\[\] = \{(.*?)\}", expression, re.S)[1]))
constants |= set(re.findall(r'strcmp\(name, "([a-z]+)"\) == 0', expression[expression.index("bool predefined"):][:600]))
assert {"none", "zeros", "ones", "pi", "in_out", "out_in"} <= constants, constants

vim = (EDITORS / "vim/syntax/pdm.vim").read_text()
listed = {w for line in re.findall(r"^syn keyword \w+ (.*)$", vim, re.M) for w in line.split()}
assert listed == keywords | constants, listed ^ (keywords | constants)
assert set(re.search(r"\\%\((B.*?)\\\)", vim)[1].split(r"\|")) == units

grammar = json.loads((EDITORS / "vscode/syntaxes/pdm.tmLanguage.json").read_text())
rules = grammar["patterns"]
words = {w for r in rules for w in re.findall(r"^\\b\(\?:([a-z_|]+)\)\\b", r.get("match", "")) for w in w.split("|")}
assert words == keywords | constants, words ^ (keywords | constants)
number = next(r["match"] for r in rules if r["name"] == "constant.numeric.pdm")
assert set(re.search(r"\(\?:(B\|.*?)\)", number)[1].split("|")) == units
for file in EDITORS.glob("vscode/*.json"):
    json.loads(file.read_text())

TEXT = 'use nn; # a use\nmodel m(n = 2) {\n  input x[n] : f32;\n  y = h[0]: linear(target, 16 GiB, 1.5e-3, 2bw, "a # b") and none;\n  loss y;\n}\n'
WANTED = {"use": ("storage.type", "pdmItem"), "nn": (None, ""), "# a use": ("comment", "pdmComment"), "model": ("storage.type", "pdmItem"),
          "input": ("keyword.other", "pdmStatement"), "linear": ("entity.name.function", "pdmCall"), "16 GiB": ("constant.numeric", "pdmNumber"),
          "1.5e-3": ("constant.numeric", "pdmNumber"), "2bw": ("constant.other", "pdmWord"), '"a # b"': ("string", "pdmString"),
          "and": ("keyword.operator.word", "pdmOperator"), "none": ("constant.language", "pdmConstant"), "loss": ("keyword.other", "pdmStatement"),
          "h[0]": (None, "pdmLabel"), "target": (None, None)}


def scopes(line):
    """By column the rule that colours it."""
    found, at = [None] * len(line), 0
    while at < len(line):
        matches = [(m.start(), i, m.end(), r["name"]) for i, r in enumerate(rules)
                   for m in [re.compile(r.get("match") or r["begin"] + r'(?:\\.|[^"\\])*(?:' + r["end"] + ")").search(line, at)] if m and m.end() > m.start()]
        if not matches:
            break
        start, _, end, name = min(matches)
        found[start:end] = [name] * (end - start)
        at = end
    return found


for word, (scope, _) in WANTED.items():
    line = next(t for t in TEXT.splitlines() if word in t)
    at = line.index(word)
    got = scopes(line)[at]
    assert (got or "").startswith(scope) if scope else got is None, (word, got)

if shutil.which("vim"):
    places = [(n + 1, line.index(word) + 1, word) for word in WANTED for n, line in enumerate(TEXT.splitlines()) if word in line]
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "m.pdm").write_text(TEXT)
        pathlib.Path(folder, "ask.vim").write_text(
            f"set nocompatible\nset runtimepath^={EDITORS}/vim\nfiletype plugin on\nsyntax on\nedit {folder}/m.pdm\nlet said = [&filetype, &commentstring]\n" +
            "".join(f"call add(said, synIDattr(synID({line}, {column}, 1), 'name'))\n" for line, column, _ in places) +
            f"call writefile(said, '{folder}/said')\nqall!\n")
        subprocess.run(["vim", "-es", "-u", f"{folder}/ask.vim"], timeout=60, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
        said = pathlib.Path(folder, "said").read_text().splitlines()
    assert said[:2] == ["pdm", "# %s"], said
    for (_, _, word), got in zip(places, said[2:]):
        wanted = WANTED[word][1]
        assert wanted is None or got == wanted, (word, got, wanted)
