#!/usr/bin/env python3
"""Writes a page as a C source: its bytes its entity tag and its content security policy.

The page has exactly one inline <style> and one inline <script>; the content security policy allows
these two by their hashes and forbids all else. Usage: embed_page.py chat.html OUT.c
"""

import base64
import hashlib
import re
import sys
from pathlib import Path


def inline_hash(page, tag):
    """The policy's source for the page's only element of this tag."""
    bodies = re.findall(rb"<%b\b[^>]*>(.*?)</%b>" % (tag, tag), page, re.DOTALL)
    if len(bodies) != 1:
        sys.exit(f"{len(bodies)} <{tag.decode()}> elements; exactly one is allowed")
    return "'sha256-" + base64.b64encode(hashlib.sha256(bodies[0]).digest()).decode() + "'"


def content_policy(page):
    rules = {"default-src": "'none'", "script-src": inline_hash(page, b"script"),
             "style-src": inline_hash(page, b"style"), "img-src": "data:", "connect-src": "'self'",
             "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
             "require-trusted-types-for": "'script'", "trusted-types": "'none'"}
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def c_source(page):
    yield '#include "server/page/page.h"\n'
    yield "const unsigned char page_chat[] = {"
    for at in range(0, len(page), 24):
        yield f"    {', '.join(map(str, page[at:at + 24]))},"
    yield "};\nconst size_t page_chat_bytes = sizeof(page_chat);"
    yield f'const char page_chat_etag[] = "\\"{hashlib.sha256(page).hexdigest()[:32]}\\"";'
    yield f'const char page_chat_policy[] = "{content_policy(page)}";'


def main():
    page = Path(sys.argv[1]).read_bytes()
    Path(sys.argv[2]).write_text("\n".join(c_source(page)) + "\n")


if __name__ == "__main__":
    main()
