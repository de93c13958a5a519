#!/usr/bin/env python3
"""Writes the chat page and the API's description as a C source.

    embed_page.py --out OUT.c --page chat/page.html --style chat/style.css --description openapi.json
                  [--libraries DIR] SCRIPT.js...

The page is one file: its style, the scripts one after the other, and the libraries (LIBRARIES below), if they are there.
It is compressed, since it is mostly libraries and fonts. The content security policy allows these elements by their
hashes, and forbids all else."""

import argparse
import base64
import gzip
import hashlib
import json
import re
import sys
from pathlib import Path

MAX_PAGE_BYTES = 700_000  # compressed

# Below --libraries, as Debian's packages libjs-markdown-it, libjs-katex, fonts-katex and libjs-highlight.js have them.
MARKDOWN_IT, KATEX, KATEX_STYLE, HIGHLIGHT = (Path("javascript") / name for name in (
    "markdown-it/markdown-it.js", "katex/katex.js", "katex/katex.min.css", "highlight.js/highlight.min.js"))
KATEX_FONTS = Path("fonts/truetype/katex")
LIBRARIES = MARKDOWN_IT, KATEX, KATEX_STYLE, HIGHLIGHT, KATEX_FONTS

# Of highlight.js' 185: what people ask a model to write.
LANGUAGES = set("""awk bash c cmake cpp cs css diff dockerfile elixir erlang fortran go gradle graphql haskell http ini java
    javascript json julia kotlin latex less lisp lua makefile markdown matlab nginx objectivec ocaml perl pgsql php plaintext
    powershell prolog properties protobuf python r ruby rust scala scheme scss shell sql swift tcl tex typescript verilog vhdl
    vim xml yaml""".split())


def chosen_languages(source):
    """highlight.js with the languages above alone: it is one function that registers one after the other."""
    begin, *languages = re.split(r'(?=hljs\.registerLanguage\(")', source)
    return begin + "".join(text for text in languages if re.match(r'hljs\.registerLanguage\("([^"]+)', text)[1] in LANGUAGES)


def style_with_fonts(style, fonts):
    """KaTeX's style with its WOFF2 fonts inside."""
    def embedded(match):
        data = base64.b64encode((fonts / match[1]).read_bytes()).decode()
        return f'src:url(data:font/woff2;base64,{data}) format("woff2")'
    return re.sub(r"src:url\([^)]*?([\w-]+\.woff2)\)[^;}]*", embedded, style)


def page_and_policy(arguments):
    script = "\n" + "\n".join(Path(name).read_text() for name in arguments.scripts)
    style, libraries = Path(arguments.style).read_text(), ""
    if arguments.libraries:
        root = Path(arguments.libraries)
        libraries = "\n;".join([(root / MARKDOWN_IT).read_text(), (root / KATEX).read_text(),
                                chosen_languages((root / HIGHLIGHT).read_text())]).replace("</script", "<\\/script")
        style += style_with_fonts((root / KATEX_STYLE).read_text(), root / KATEX_FONTS)
    page = Path(arguments.page).read_text()
    for mark, text in (("@STYLE@", style), ("@LIBRARIES@", libraries), ("@SCRIPT@", script)):
        page = page.replace(mark, text, 1)
    return page.encode(), content_policy([libraries, script], [style])


def hashes(texts):
    return " ".join("'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'" for text in texts)


def content_policy(scripts, styles):
    rules = {"default-src": "'none'", "script-src": hashes(scripts), "style-src": hashes(styles),
             "font-src": "data:", "img-src": "data:", "connect-src": "'self'",
             "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
             "require-trusted-types-for": "'script'", "trusted-types": "'none'"}
    return "; ".join(f"{name} {value}" for name, value in rules.items())


# Status -> the response's name under components. What any route may answer, and what one that needs a
# key may.
ANY = {"400": "Refused", "403": "OtherSite", "405": "WrongMethod", "408": "TooSlow", "413": "TooLarge",
       "414": "LongUrl", "421": "OtherHost", "431": "LongHeader", "501": "NoCoding", "503": "Unavailable"}
GUARDED = {"401": "NoKey"}

# Operations of these tags answer errors in another shape, except for those that come before the path is known: how its
# responses and its schema are called, and a second name of X-Request-Id.
DIALECTS = {"messages": ("Message", "MessageError", "request-id"), "ollama": ("Ollama", "OllamaError", None)}
PATHLESS = ("LongUrl", "LongHeader")


def add_answers(operation):
    names = dict(ANY)
    if operation.get("security") != []:
        names.update(GUARDED)
    for status, name in names.items():
        operation["responses"].setdefault(status, {"$ref": f"#/components/responses/{name}"})


def add_request_id(response):
    headers = response.setdefault("headers", {})
    headers["X-Request-Id"] = {"$ref": "#/components/headers/X-Request-Id"}


def dialect_answer(response, schema, request_id):
    """The response as these operations have it."""
    response = json.loads(json.dumps(response).replace("#/components/schemas/Error", f"#/components/schemas/{schema}"))
    if request_id:
        response.setdefault("headers", {})[request_id] = {"$ref": f"#/components/headers/{request_id}"}
    return response


def use_dialect_answers(operation, responses, prefix, schema, request_id):
    for status, response in operation["responses"].items():
        name = response.get("$ref", "").rsplit("/", 1)[-1]
        if not name:
            operation["responses"][status] = dialect_answer(response, schema, request_id)
        elif name not in PATHLESS:
            responses.setdefault(prefix + name, dialect_answer(responses[name], schema, request_id))
            operation["responses"][status] = {"$ref": f"#/components/responses/{prefix}{name}"}


def whole_description(description):
    for path in description["paths"].values():
        for method in path.keys() - {"parameters"}:
            add_answers(path[method])
            for tag in DIALECTS.keys() & path[method]["tags"]:
                use_dialect_answers(path[method], description["components"]["responses"], *DIALECTS[tag])
            for response in path[method]["responses"].values():
                if "$ref" not in response:
                    add_request_id(response)
    for response in description["components"]["responses"].values():
        add_request_id(response)
    return description


def c_bytes(name, data):
    yield f"const unsigned char {name}[] = {{"
    for at in range(0, len(data), 24):
        yield f"    {', '.join(map(str, data[at:at + 24]))},"
    yield f"}};\nconst size_t {name}_bytes = sizeof({name});"


def c_source(page, policy, description):
    packed = gzip.compress(page, 9, mtime=0)
    if len(packed) > MAX_PAGE_BYTES:
        sys.exit(f"the chat page has {len(packed)} bytes compressed: at most {MAX_PAGE_BYTES}")
    yield '#include "server/page/page.h"\n'
    yield from c_bytes("page_chat", packed)
    yield f'const char page_chat_etag[] = "\\"{hashlib.sha256(page).hexdigest()[:32]}\\"";'
    yield f'const char page_chat_policy[] = "{policy}";'
    yield from c_bytes("page_openapi", json.dumps(whole_description(description)).encode())


def main():
    parser = argparse.ArgumentParser()
    for name in ("out", "page", "style", "description"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--libraries")
    parser.add_argument("scripts", nargs="+")
    arguments = parser.parse_args()
    description = json.loads(Path(arguments.description).read_text())
    Path(arguments.out).write_text("\n".join(c_source(*page_and_policy(arguments), description)) + "\n")


if __name__ == "__main__":
    main()
