#!/usr/bin/env python3
"""Writes a page as a C source: its bytes its entity tag and its content security policy.

The page has exactly one inline <style> and one inline <script>; the content security policy allows
these two by their hashes and forbids all else. Usage: embed_page.py chat.html OUT.c
"""

import base64
import hashlib
import json
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


# Status -> the response's name under components. What any route may answer, and what one that needs a
# key may.
ANY = {"400": "Refused", "403": "OtherSite", "405": "WrongMethod", "408": "TooSlow", "413": "TooLarge",
       "414": "LongUrl", "421": "OtherHost", "431": "LongHeader", "501": "NoCoding", "503": "Unavailable"}
GUARDED = {"401": "NoKey"}

# Operations of this tag answer errors in Anthropic's shape, but for those that come before the path is known.
MESSAGES = "messages"
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


def message_answer(response):
    """The response as these operations have it."""
    response = json.loads(json.dumps(response).replace("#/components/schemas/Error", "#/components/schemas/MessageError"))
    response.setdefault("headers", {})["request-id"] = {"$ref": "#/components/headers/request-id"}
    return response


def use_message_answers(operation, responses):
    for status, response in operation["responses"].items():
        name = response.get("$ref", "").rsplit("/", 1)[-1]
        if not name:
            operation["responses"][status] = message_answer(response)
        elif name not in PATHLESS:
            responses.setdefault(f"Message{name}", message_answer(responses[name]))
            operation["responses"][status] = {"$ref": f"#/components/responses/Message{name}"}


def whole_description(description):
    for path in description["paths"].values():
        for method in path.keys() - {"parameters"}:
            add_answers(path[method])
            if MESSAGES in path[method]["tags"]:
                use_message_answers(path[method], description["components"]["responses"])
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


def c_source(page, description):
    yield '#include "server/page/page.h"\n'
    yield from c_bytes("page_chat", page)
    yield f'const char page_chat_etag[] = "\\"{hashlib.sha256(page).hexdigest()[:32]}\\"";'
    yield f'const char page_chat_policy[] = "{content_policy(page)}";'
    yield from c_bytes("page_openapi", json.dumps(whole_description(description)).encode())


def main():
    page, description = Path(sys.argv[1]).read_bytes(), json.loads(Path(sys.argv[2]).read_text())
    Path(sys.argv[3]).write_text("\n".join(c_source(page, description)) + "\n")


if __name__ == "__main__":
    main()
