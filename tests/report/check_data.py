"""Compares a page of `pdc data --show` with its text and with the data:  check_data.py DATA TEXT PAGE"""
import base64
import glob
import html
import os
import re
import sys

data, text, page = sys.argv[1], open(sys.argv[2]).read(), open(sys.argv[3]).read()
body = page[page.index("<main>"):]
plain = lambda part: html.unescape(re.sub("<[^>]*>", "", part))
assert "<script" not in page and "http" not in page and "url(" not in page, "the page loads something"
assert set(re.findall(r'src="([^;]*);', page)) <= {"data:image/png"}, "an image is elsewhere"
figures = {name: value for value, name in re.findall(r"<b>([^<]*)</b><span>([^<]*)</span>", body)}
bars = re.findall(r"<span>([^<]*)</span><div class=\"track\">.*?<span class=\"value\">([^<]*)</span>", body, re.S)
if data.endswith(".npz"):
    rows, length, low, high = re.match(r"\S+: (\d+) rows? of (\d+) positions, tokens (\d+) to (\d+)", text).groups()
    loss, padding = re.search(r"^(.*) with loss, (.*) padding$", text, re.M).groups()
    assert figures == {"rows": rows, "positions of a row": length, "with loss": loss, "padding": padding, "tokens used": f"{low} to {high}"}
    assert bars == [(f"{a} to {b}", n) for a, b, n in re.findall(r"^ +(\d+) to (\d+) +(\d+)", text, re.M)], bars
    shown = [s.replace("\n  ", "\n").rstrip() for s in re.split(r"row \d+:\n  ", text)[1:]]
    samples = re.findall(r"<pre class=\"sample\">(.*?)</pre>", body, re.S)
    marked = [plain(s.replace("<mark>", "[[").replace("</mark>", "]]")).replace("\ufffd", "\\x01").rstrip() for s in samples]
    assert marked == shown and "[[" in marked[0] and len(marked) == 2, (marked, shown)
else:
    n, classes = re.match(r"\S+: (\d+) images in (\d+) classes", text).groups()
    assert figures == {"images": n, "classes": classes} and n == "80", figures
    assert bars == re.findall(r"^  (\S+): (\d+)$", text, re.M) and sum(int(k) for _, k in bars) == 80, bars
    assert classes == ("11" if data.endswith(".tar") else "2")
    files = {open(path, "rb").read() for path in glob.glob("shapes/held/*/*.png")}
    images = [base64.b64decode(x) for x in re.findall(r"base64,([^\"]*)\"", page)]
    assert len(images) == 24 and set(images) <= files and len(set(images)) == 24, len(images)
