#!/usr/bin/env python3
"""How the chat page shows what others' suites hold, in a headless Chromium.

    check_page.py --binary build/server/quire --model MODEL.gguf [--spec spec.txt] [--xss expect.mjs]

--spec: CommonMark's own examples (commonmark-spec's spec.txt): how many are shown as it says. HTML stays text here, so the
examples of HTML are counted apart. --xss: the payloads of DOMPurify's tests (test/fixtures/expect.mjs), each as a reply:
whether one runs, leaves an attribute that could, or is only held back by the policy."""

import argparse
import html.parser
import json
import os
import re
import sys
import tempfile
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

BLOCKS = {"p", "ul", "ol", "li", "blockquote", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "hr"}
DANGEROUS = """[...document.querySelectorAll("#turns *")].filter((node) =>
    ["SCRIPT", "IFRAME", "OBJECT", "EMBED", "STYLE", "FORM", "BASE", "META"].includes(node.tagName) ||
    [...node.attributes].some(({ name, value }) => /^on/.test(name) ||
        name !== "class" && /^\\s*(javascript|vbscript|data:text)/i.test(value))
).map((node) => node.outerHTML.slice(0, 200))"""


class Parts(html.parser.HTMLParser):
    """HTML as a list of tags and texts, without what the page adds to code and links."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.parts, self.in_pre, self.skipped = [], 0, 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        fields = dict(attributes)
        if tag == "div" and fields.get("class") == "code":
            return
        if self.skipped or tag in ("div", "button"):
            self.skipped += 1
            return
        self.in_pre += tag == "pre"
        kept = {name: fields[name] for name in ("href", "src", "alt", "title", "start") if fields.get(name) is not None}
        if tag == "code" and fields.get("class", "").startswith("language-"):
            kept["class"] = fields["class"]
        if tag == "span":
            return
        if tag in BLOCKS:
            self.trim()
        if tag == "img" and not kept.get("src", "").startswith("data:"):  # is a link here, or a text in one
            self.add_picture(kept)
            return
        self.parts.append((tag, tuple(sorted(kept.items()))))

    def add_picture(self, fields):
        is_in_link = self.num_open("a") > 0
        title = (("title", fields["title"]),) if "title" in fields else ()
        if not is_in_link:
            self.parts.append(("a", (("href", fields["src"]), *title)))
        self.handle_data("Image: " + (fields.get("alt") or fields["src"]))
        if not is_in_link:
            self.parts.append("/a")

    def num_open(self, tag):
        return sum(part[0] == tag if isinstance(part, tuple) else -(part == "/" + tag) for part in self.parts)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        if self.skipped:
            self.skipped -= tag in ("div", "button", "span")
            return
        if tag in ("span", "div", "img", "br", "hr"):
            return
        self.in_pre -= tag == "pre"
        if tag in BLOCKS:
            self.trim()
        self.parts.append("/" + tag)

    def handle_data(self, data):
        if self.skipped:
            return
        if self.parts and isinstance(self.parts[-1], str) and not self.parts[-1].startswith("/"):
            data = self.parts.pop() + data
        elif not self.in_pre and not data.strip():
            return
        self.parts.append(data)

    def trim(self):
        if self.parts and isinstance(self.parts[-1], str) and not self.parts[-1].startswith("/"):
            self.parts[-1] = self.parts[-1].rstrip() if not self.in_pre else self.parts[-1].rstrip("\n")
            if not self.parts[-1]:
                self.parts.pop()


def normal(text):
    parts = []
    for part in Parts(text).parts:
        if isinstance(part, str) and not part.startswith("/"):
            part = re.sub(r"\s*\n\s*", "\n", part).strip()
            if not part:
                continue
        elif not isinstance(part, str):
            part = part[0], tuple((name, urllib.parse.unquote(value)) for name, value in part[1])
        parts.append(part)
    return parts


def examples_of(spec):
    section = ""
    pattern = r"^`{32} example\n(.*?)^\.\n(.*?)^`{32}$|^#{1,6} *([^\n]*)$"
    for match in re.finditer(pattern, spec, re.MULTILINE | re.DOTALL):
        if match[3] is not None:
            section = match[3]
        else:
            yield section, match[1].replace("→", "\t"), match[2].replace("→", "\t")


class Reader:
    """A page on which replies are scripted."""

    def __init__(self, stage, browser, **options):
        from browser import Page
        self.stage, self.page = stage, Page(browser, **options)
        self.page.open(stage.url + "/")
        self.page.wait_for("document.querySelector('#model').value")

    def show(self, text):
        from page_stage import text_chunks
        self.stage.reply = lambda: text_chunks(text, max(1, len(text)))
        self.page.click("#clear")
        self.page.click("#input")
        self.page.type("x")
        self.page.press("Enter")
        self.page.wait_for("document.querySelector('#send').innerText === 'Send' && document.querySelectorAll('article, .problem').length > 1")


def check_spec(reader, path):
    passed, failed, with_html = 0, [], [0, 0]
    for section, source, expected in examples_of(Path(path).read_text()):
        if not source.strip():
            continue
        reader.show(source)
        shown = reader.page.run("document.querySelector('.assistant .text')?.innerHTML ?? ''")
        is_same = normal(shown) == normal(expected)
        if "HTML" in section or re.search(r"<[a-z/!?]", source):
            with_html[not is_same] += 1
        elif is_same:
            passed += 1
        else:
            failed.append((section, source, expected, shown))
    for section, source, expected, shown in failed:
        print(f"--- {section}\n{source}expected {expected}shown    {shown}")
    print(f"CommonMark: {passed} of {passed + len(failed)} examples without HTML; with HTML, which stays text: {with_html[0]} of {sum(with_html)}")
    return len(failed)


def check_xss(reader, path):
    texts = re.findall(r"\"?payload\"?:\s*((?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`\\]|\\.)*`|\s*\+\s*)+)", Path(path).read_text(), re.DOTALL)
    payloads = [reader.page.run(f"({text})") for text in texts]
    reader.page.run("window.alert = window.confirm = window.prompt = (...words) => { (window.run ??= []).push(String(words)); }")
    bad = []
    for payload in payloads:
        for text in (payload, f"**{payload}**", f"[a]({payload})", f"```html\n{payload}\n```", f"$${payload}$$"):
            reader.show(text)
            found = reader.page.run(DANGEROUS)
            if found or reader.page.run("(window.run ?? []).length"):
                bad.append((text, found, reader.page.run("window.run")))
    others = [url for url in reader.page.requests if not url.startswith((reader.stage.url, "data:"))]
    held = [problem for problem in reader.page.problems if "args" not in problem]  # without what KaTeX writes to the console
    for one in [*bad, *([problem] for problem in held)]:
        print("---", *one)
    print(f"XSS: {len(payloads)} payloads in 5 places: {len(bad)} ran or left something that could; {len(others)} requests to others; "
          f"{len(held)} held back by the policy")
    return len(bad) + len(others) + len(held)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("binary", "model"):
        parser.add_argument("--" + name, required=True)
    for name in ("spec", "xss"):
        parser.add_argument("--" + name)
    arguments = parser.parse_args()
    os.environ.update(QUIRE_TEST_BINARY=arguments.binary, QUIRE_TEST_MODEL=arguments.model)
    from browser import Browser
    from page_stage import Stage
    from quire_server import QuireServer
    with tempfile.TemporaryDirectory() as folder:
        server = QuireServer(Path(folder) / "server.log")
        stage, browser = Stage(server), Browser(Path(folder) / "profile")
        try:
            bad = check_spec(Reader(stage, browser), arguments.spec) if arguments.spec else 0
            bad += check_xss(Reader(stage, browser), arguments.xss) if arguments.xss else 0
        finally:
            browser.close()
            stage.close()
            server.kill()
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
