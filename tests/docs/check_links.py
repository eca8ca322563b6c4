"""Every link within a folder of HTML pages leads to a file, and to a place in it:  check_links.py FOLDER"""
import html.parser
import os
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.ids = [], set()
        with open(path, encoding="utf-8") as f:
            self.feed(f.read())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src"):
                self.links.append(value)


def main(top):
    pages = {}
    for folder, _, names in os.walk(top):
        for name in names:
            if name.endswith(".html"):
                path = os.path.normpath(os.path.join(folder, name))
                pages[path] = Page(path)
    bad = n = 0
    for path, page in pages.items():
        for link in page.links:
            if ":" in link:  # of another site
                continue
            n += 1
            file, _, place = link.partition("#")
            to = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(file))) if file else path
            if not os.path.exists(to):
                print(f"{path}: '{link}' leads to no file")
                bad += 1
            elif place and to in pages and place not in pages[to].ids:
                print(f"{path}: '{link}' leads to no place of the page")
                bad += 1
    print(f"{len(pages)} pages, {n} links")
    return bad > 0 or n == 0


sys.exit(main(sys.argv[1]))
