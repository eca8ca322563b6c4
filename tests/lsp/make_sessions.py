"""Writes the sessions of this folder:  python3 tests/lsp/make_sessions.py

A place is marked in the text that is asked about: the character behind ^^."""
import json
import os

here = os.path.dirname(os.path.abspath(__file__))


class Session:
    def __init__(self, name):
        self.name, self.lines, self.asked = name, [], 0
        self.request("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        self.notify("initialized", {})

    def add(self, message):
        self.lines.append(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")))

    def request(self, method, params):
        self.asked += 1
        self.add({"id": self.asked, "method": method, "params": params})

    def notify(self, method, params):
        self.add({"method": method, "params": params})

    def open(self, path, text):
        self.notify("textDocument/didOpen", {"textDocument": {"uri": "file://TOP/" + path, "languageId": "pdm", "version": 1, "text": text}})

    def change(self, path, text, version=2):
        self.notify("textDocument/didChange", {"textDocument": {"uri": "file://TOP/" + path, "version": version},
                                               "contentChanges": [{"text": text}]})

    def ask(self, what, path, marked, **more):
        before, _ = marked.split("^^")
        line = before.count("\n")
        character = len(before[before.rfind("\n") + 1:].encode("utf-16-le")) // 2
        self.lines.append(f"// {what} at {marked.splitlines()[line].strip()}")
        self.request("textDocument/" + what, {"textDocument": {"uri": "file://TOP/" + path},
                                              "position": {"line": line, "character": character}, **more})

    def write(self):
        self.request("shutdown", None)
        self.notify("exit", None)
        with open(f"{here}/{self.name}.session", "w", encoding="utf-8", errors="surrogateescape") as f:
            f.write("// Made by make_sessions.py\n" + "\n".join(self.lines) + "\n")


MODEL = """use nn; # Wörter, 𝄞
layer twice(x[n], size = 4, act = relu) {
  y = a: linear(x, size); return act(b: linear(y, size)) + y;
}
model m(n = 3, k = 4) {
  input x[n] : f32;
  target t[1] : token(10);
  for i in 0..2 { x = h[i]: twice(x, size = k); }
  loss cross_entropy(head: linear(x + 0 * sum(h[1].a.bias), 10), t); # 𝄞 é
}
train m { batch = 8; optimizer = adamw(lr = 1e-3); pipeline = 2bw; }
"""


def at(word, nth=0, of=MODEL):
    """The text with the mark before the nth place of a word."""
    place = -1
    for _ in range(nth + 1):
        place = of.index(word, place + 1)
    return of[:place] + "^^" + of[place:]


s = Session("features")
s.open("tests/lsp/m.pdm", MODEL)
for word, nth in [("y = a", 0), ("linear", 0), ("linear", 1), ("linear", 2), ("twice", 1), ("size = k", 0), ("m(n", 0), ("x[n]", 1),
                  ("h[i]", 0), ("h[1]", 0), ("x + 0", 0), ("0 * s", 0), ("+ 0", 0), ("act(", 0), ("cross_entropy", 0), ("n = 3", 0), ("batch", 0)]:
    s.ask("hover", "tests/lsp/m.pdm", at(word, nth))
for word, nth in [("linear", 0), ("twice", 1), ("size = k", 0), ("size)", 1), ("y;", 0), ("h[1]", 0), ("x + 0", 0), ("nn", 0), ("m {", 0), ("t);", 0), ("act(", 0), ("batch", 0)]:
    s.ask("definition", "tests/lsp/m.pdm", at(word, nth))
for word, nth, new in [("y = a", 0, "z"), ("size = 4", 0, "width"), ("size)", 0, "width"), ("twice", 0, "thrice"), ("h[1]", 0, "block"), ("m {", 0, "net"),
                       ("linear", 0, "mine"), ("y = a", 0, "x"), ("y = a", 0, "for"), ("y = a", 0, "1a"), ("twice", 0, "linear"), ("batch", 0, "b"), ("size = k", 0, "w")]:
    s.ask("rename", "tests/lsp/m.pdm", at(word, nth), newName=new)
s.ask("formatting", "tests/lsp/m.pdm", "^^", options={"tabSize": 2, "insertSpaces": True})
training = MODEL.replace("batch = 8", "batch = 2 * k")  # an attribute of the model, seen where it is trained
s.change("tests/lsp/m.pdm", training)
for what, more in [("hover", {}), ("definition", {}), ("rename", {"newName": "width"})]:
    s.ask(what, "tests/lsp/m.pdm", at("k; opt", of=training), **more)
s.write()

s = Session("diagnostics")
s.open("tests/lsp/m.pdm", MODEL)
s.ask("hover", "tests/lsp/m.pdm", "^^")
for old, new in [("linear(y", "linaer(y"), ("size) +", "size +"), ("x + 0", "x @ t"), ("use nn", "use nm"), ("model m", "layer m"), ("# Wörter, 𝄞\n", "é\n")]:
    s.change("tests/lsp/m.pdm", MODEL.replace(old, new))
    s.ask("hover", "tests/lsp/m.pdm", "^^")
s.change("tests/lsp/m.pdm", "use mine; model m() { input x[3]; loss m: mine(x); }")  # tests/lsp/mine.pdm has one argument more
s.ask("hover", "tests/lsp/m.pdm", "^^")
s.open("tests/lsp/mine.pdm", "use nn; layer mine(x) { return linear(x, 2); }")
s.ask("definition", "tests/lsp/m.pdm", "use mine; model m() { input x[3]; loss m: ^^mine(x); }")
s.change("tests/lsp/mine.pdm", "use nn; layer mine(x, y) { return linear(x, y); }")
s.ask("rename", "tests/lsp/mine.pdm", "use nn; layer ^^mine(x, y) { return linear(x, y); }", newName="ours")
s.notify("textDocument/didClose", {"textDocument": {"uri": "file://TOP/tests/lsp/mine.pdm"}})
s.ask("hover", "tests/lsp/m.pdm", "^^")
s.write()

s = Session("completion")
s.open("tests/lsp/m.pdm", MODEL)
for text in ["^^", "use ^^", "use transformer;\nmodel m(n = 1) {\n  input x[n];\n  y = transformer_block(x, 4, causal = true, ^^",
             "layer f(x, wide) { ^^ }", "train m { ^^", "train m { pipeline = ^^", "train m { optimizer = ^^", "train m { lr_schedule = ^^",
             "train m { optimizer = muon(^^", "train m { lr_schedule = wsd(^^", "cluster c { device { ^^"]:
    s.change("tests/lsp/m.pdm", text.replace("^^", ""))
    s.ask("completion", "tests/lsp/m.pdm", text)
s.write()

s = Session("protocol")
s.lines.insert(0, '{"jsonrpc":"2.0","id":"early","method":"textDocument/hover","params":{}}')
s.lines.append("{")
s.lines.append('[]')
s.lines.append('{"jsonrpc":"2.0","id":7}')
s.lines.append('{"jsonrpc":"2.0","id":8,"method":"\udcff\udcc3é"}')  # bytes that are no UTF-8
s.request("textDocument/hover", {"textDocument": {"uri": "file:///nowhere.pdm"}, "position": {"line": 0, "character": 0}})
s.request("textDocument/hover", None)
s.request("textDocument/references", {})
s.notify("$/setTrace", {"value": "off"})
s.open("tests/lsp/m%20%C3%A9.pdm", "model")
s.ask("formatting", "tests/lsp/m%20%C3%A9.pdm", "^^")
s.request("textDocument/hover", {"textDocument": {"uri": "file://TOP/tests/lsp/m%20%C3%A9.pdm"}, "position": {"line": 1000000000000, "character": -4}})
s.request("shutdown", None)
s.request("textDocument/hover", {})
s.write()
