"""Prints how pdc's processor time grows with what a file holds:
    scale.py PDC [--least N] [--most N] [--limit SECONDS] [--check] [KIND[:READER]...]

KIND is a file of n of one thing, from N in steps of 8; READER is what reads it: check (pdc -fsyntax-only), fmt, lsp (a session of
`pdc lsp`), wrong (check, of a file with mistakes), define (n times -D). A run of more than SECONDS ends its row. With --check the status
is 1 where a step of 8 times as many takes more than 24 times as long and 0.4 seconds, or more than SECONDS. Times are processor
times of pdc alone."""
import argparse
import os
import subprocess
import sys
import tempfile

HEAD = "use nn;\nmodel m() {\n  input x[4];\n"


def model(body, loss="x"):
    return HEAD + body + f"  loss head: linear({loss}, 1);\n}}\n"


def lines(n, text, of=lambda i: (i,)):
    return "".join(text % of(i) for i in range(n))


# name: (text of n things, what of pdc reads it)
KINDS = {
    "comments": (lambda n: lines(n, "# comment %d\n") + model(""), ["check", "fmt", "lsp"]),
    "blank_lines": (lambda n: model("\n" * n), ["check", "fmt", "lsp"]),
    "numbers": (lambda n: model(lines(n, "  a%d = %d;\n", lambda i: (i, i))), ["check", "fmt", "lsp"]),
    "one_name": (lambda n: model(lines(n, "  a = %d;\n")), ["check", "fmt", "lsp"]),
    "chain": (lambda n: model("  a0 = 0;\n" + lines(n, "  a%d = a%d + 1;\n", lambda i: (i + 1, i))), ["check", "fmt", "lsp"]),
    "tensors": (lambda n: model("  a0 = x;\n" + lines(n, "  a%d = a%d * 2;\n", lambda i: (i + 1, i)), f"a{n}"), ["check", "lsp"]),
    "tensors_of_one": (lambda n: model("  a = x;\n" + lines(n, "  a = a + x;\n", lambda i: ()), "a"), ["check", "lsp"]),
    "params": (lambda n: model(lines(n, "  param p%d[4] = zeros;\n") + "  y = x;\n" + lines(n, "  y = y + p%d;\n"), "y"), ["check", "lsp"]),
    "inputs": (lambda n: model(lines(n, "  input i%d[4];\n") + "  y = x;\n" + lines(n, "  y = y + i%d;\n"), "y"), ["check", "lsp"]),
    "instances": (lambda n: model("  y = x;\n" + lines(n, "  y = l%d: linear(y, 4);\n"), "y"), ["check", "lsp"]),
    "unlabelled": (lambda n: model("  y = x;\n" + lines(n, "  y = relu(y);\n", lambda i: ()), "y"), ["check", "lsp"]),
    "losses": (lambda n: HEAD + lines(n, "  loss head%d: linear(x, 1);\n") + "}\n", ["check", "lsp"]),
    "metrics": (lambda n: model(lines(n, "  metric m%d = sum(x);\n")), ["check", "lsp"]),
    "outputs": (lambda n: model(lines(n, "  output o%d = x * %d;\n", lambda i: (i, i + 1))), ["check", "lsp"]),
    "ifs": (lambda n: model("  y = 1;\n" + lines(n, "  if y > %d { y = 1; }\n")), ["check", "fmt", "lsp"]),
    "loops": (lambda n: model("  y = 1;\n" + lines(n, "  for i%d in 0..1 { y = 1; }\n")), ["check", "fmt", "lsp"]),
    "passes": (lambda n: model("  y = 1;\n  for i in 0..%d { for j in 0..10 { y = i; } }\n" % (n // 10)), ["check"]),
    "block_names": (lambda n: model("  for i in 0..2 {\n" + lines(n, "    a%d = i;\n") + "  }\n"), ["check", "lsp"]),
    "list": (lambda n: model("  a = [" + ", ".join(map(str, range(n))) + "];\n"), ["check", "fmt", "lsp"]),
    "arguments": (lambda n: model("  a = concat([" + ", ".join(["x"] * n) + "], -1);\n", "a"), ["check", "fmt", "lsp"]),
    "long_string": (lambda n: model('  a = "' + "a" * n + '";\n'), ["check", "fmt", "lsp"]),
    "layers": (lambda n: lines(n, "layer l%d(x) { return x; }\n") + model(""), ["check", "fmt", "lsp"]),
    "layers_called": (lambda n: lines(n, "layer l%d(x) { return x + 1; }\n") + model("  y = x;\n" + lines(n, "  y = l%d(y);\n"), "y"), ["check", "lsp"]),
    "attributes": (lambda n: "use nn;\nmodel m(" + ", ".join(f"a{i} = {i}" for i in range(n)) + ") { input x[4]; loss head: linear(x, 1); }\n", ["check", "fmt", "lsp"]),
    "formals": (lambda n: "layer l(x, " + ", ".join(f"a{i} = {i}" for i in range(n)) + ") { return x; }\n" + model("  y = l(x);\n", "y"), ["check", "fmt", "lsp"]),
    "named_arguments": (lambda n: "layer l(x, " + ", ".join(f"a{i} = 0" for i in range(n)) + ") { return x; }\n" +
                        model("  y = l(x, " + ", ".join(f"a{i} = {i}" for i in range(n)) + ");\n", "y"), ["check", "fmt", "lsp"]),
    "returned": (lambda n: "layer l(x) { return " + ", ".join(["x"] * n) + "; }\n" +
                 model("  " + ", ".join(f"y{i}" for i in range(n)) + " = l(x);\n"), ["check", "fmt", "lsp"]),
    "settings": (lambda n: model("") + "train m {\n" + lines(n, "  batch = %d;\n", lambda i: (i + 1,)) + "}\n", ["wrong", "fmt"]),
    "freezes": (lambda n: model("") + "train m {\n" + lines(n, '  freeze "a%d";\n') + "}\n", ["check", "fmt", "lsp"]),
    "pattern": (lambda n: model("") + 'train m {\n  freeze "' + "|".join(f"a{i}" for i in range(n)) + '";\n}\n', ["check", "fmt"]),
    "unknown_names": (lambda n: model(lines(n, "  a%d = b%d;\n", lambda i: (i, i))), ["wrong", "lsp"]),
    "unread": (lambda n: model(lines(n, "  a%d = x + %d;\n", lambda i: (i, i))), ["check", "lsp"]),
    "definitions": (lambda n: "use nn;\nmodel m(" + ", ".join(f"a{i} = {i}" for i in range(n)) + ") { input x[4]; loss head: linear(x, 1); }\n", ["define"]),
}
MOST = {"definitions": 20000}


def lsp_session(path, text):
    import json
    uri = "file://" + path
    place = {"textDocument": {"uri": uri}, "position": {"line": text.count("\n") - 2, "character": 8}}
    messages = [
        {"id": 1, "method": "initialize", "params": {"capabilities": {}}}, {"method": "initialized", "params": {}},
        {"method": "textDocument/didOpen", "params": {"textDocument": {"uri": uri, "languageId": "pdm", "version": 1, "text": text}}},
        {"id": 2, "method": "textDocument/hover", "params": place}, {"id": 3, "method": "textDocument/definition", "params": place},
        {"id": 4, "method": "textDocument/documentSymbol", "params": {"textDocument": {"uri": uri}}},
        {"id": 5, "method": "textDocument/completion", "params": place},
        {"id": 6, "method": "textDocument/references", "params": {**place, "context": {"includeDeclaration": True}}},
        {"id": 7, "method": "shutdown"}, {"method": "exit"}]
    out = b""
    for m in messages:
        body = json.dumps({"jsonrpc": "2.0", **m}).encode()
        out += b"Content-Length: %d\r\n\r\n" % len(body) + body
    return out


def seconds_of(pdc, what, n, path, text, limit):
    """Processor seconds of one run; None: over the limit. The status must be what the kind says."""
    command = {"check": [pdc, "-fsyntax-only", path], "wrong": [pdc, "-fsyntax-only", path], "fmt": [pdc, "fmt", "-"],
               "lsp": [pdc, "lsp"], "define": [pdc, "-fsyntax-only", *(f"-Da{i}={i}" for i in range(n)), path]}[what]
    given = {"fmt": text.encode(), "lsp": lsp_session(path, text)}.get(what, b"") if what in ("fmt", "lsp") else b""
    before = os.times()
    try:
        done = subprocess.run(command, input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=6 * limit, check=False)
    except subprocess.TimeoutExpired:
        return None
    after = os.times()
    if done.returncode != (1 if what == "wrong" else 0):
        sys.exit(f"{' '.join(command)[:200]}: status {done.returncode}: {done.stderr.decode()[-500:]}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent if spent <= limit else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pdc")
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--least", type=int, default=1000)
    parser.add_argument("--most", type=int, default=512000)
    parser.add_argument("--limit", type=float, default=20)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    bad = 0
    sizes = []
    n = given.least
    while n <= given.most:
        sizes.append(n)
        n *= 8
    print(f"{'':24}" + "".join(f"{n:>10,}" for n in sizes))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pdm")
        for asked in given.kinds or KINDS:
            kind, _, reader = asked.partition(":")
            make, readers = KINDS[kind]
            for what in [reader] if reader else readers:
                row, last = [], None
                for n in sizes:
                    text = make(n)
                    if n > MOST.get(kind, n) or len(text) > 1 << 24:
                        break
                    with open(path, "w", encoding="ascii") as f:
                        f.write(text)
                    spent = seconds_of(given.pdc, what, n, path, text, given.limit)
                    row.append(f"{spent:10.2f}" if spent is not None else f"{'>' + str(given.limit):>10}")
                    bad += given.check and (spent is None or (last is not None and spent > 24 * last + 0.4))
                    last = spent
                    if spent is None:
                        break
                print(f"{kind + ' ' + what:24}" + "".join(row), flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
