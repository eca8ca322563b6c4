"""What the tests of pages share: a page's elements and data, and a page opened in a Chromium where one is installed."""
import html
import html.parser
import json
import os
import re
import shutil
import subprocess
import tempfile


class Outline(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.tags, self.loads, self.text, self.inside = set(), [], [], {}, None

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.ids.add(attributes.get("id"))
        self.loads += [v for k, v in attributes.items() if k in ("src", "href")]
        self.inside = attributes.get("id") if tag == "script" else tag

    def handle_data(self, data):
        self.text[self.inside] = self.text.get(self.inside, "") + data

    def handle_endtag(self, tag):
        self.inside = None


def read(path):
    """The page's text, outline and data; it refers to nothing outside itself and has no element but its own."""
    with open(path, encoding="utf-8") as f:
        page = f.read()
    outline = Outline()
    outline.feed(page)
    assert not outline.loads
    assert not re.search("https?://", page.replace("http://www.w3.org/2000/svg", ""))
    assert not re.search(r"@import|url\((?!#)|fetch\(|XMLHttpRequest|import\(", page)
    assert outline.tags.count("script") == 2 and "img" not in outline.tags
    return page, outline, json.loads(outline.text["data"])


PROBE = """
<script>
const said = [];
addEventListener("error", (e) => { if (!/ResizeObserver/.test(e.message)) said.push(e.message); });
</script>"""
RESULT = """
addEventListener("load", () => { // images are there
  result.undrawn = [...document.images].filter((i) => i.naturalWidth < 100).length;
  const out = document.createElement("pre");
  out.id = "result";
  out.textContent = JSON.stringify(result);
  document.body.append(out);
});
</script>"""


def in_browser(page, act):
    """What `act`, a script that runs after the page's own, leaves in the object `result`; None without a browser."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        return None
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "page.html")
        with open(copy, "w", encoding="utf-8") as f:
            act = "\n<script>" + act + RESULT
            f.write(page.replace("<style>", PROBE + "<style>", 1).replace("</body>", act + "</body>"))
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000", "--dump-dom",
                   "--user-data-dir=" + os.path.join(folder, "profile"), "file://" + copy]
        dom = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120).stdout.decode()
    return json.loads(html.unescape(re.search(r'<pre id="result">(.*?)</pre>', dom, re.S)[1]))
