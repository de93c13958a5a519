#!/usr/bin/env python3
"""Looks in the comments of the sources, and in the pages for users, for turns of phrase that CONTRIBUTING.md lists
under "do not say": those that have no other meaning. Prints each as FILE:LINE; exits 1 when there is any.
Usage: check_words.py ROOT"""

import re
import sys
from pathlib import Path

from source_tree import COMMENT, STRING, read_sources

SAY = [
    ("after", r"[Bb]ehind (?:the|it|its|them|those|these)"),
    ("n, that many", r"[Ss]o many(?! [\w ]+ that\b)"),
    ("is not a", r"(?<![Tt]here )(?:is|are) no (?!longer|more|one|other|end|faster)\w+"),
    ("continues", r"(?:goes|go|went) on(?! (?:the|a|with) )"),
    ("like X", r"as [\w']+ (?:has|have) it"),
    ("next to, in addition to", r"[Bb]eside"),
    ("forever", r"for ever"),
]
SAY_IN_PAGES = SAY + [
    ("the caller, the client", r"[Ww]hoever"),
    ("on average", r"in the mean"),
    ("what happens to", r"becomes? of (?:a|it|the|them)"),
    ("too", r"[Ll]ikewise"),
    ("except for", r"but for (?!\d)"),
    ("disconnects", r"hangs? up"),
    ("unsupported, missing", r"(?:is|are) not here"),
]
GENERATED = "docs/migrating.md"


def pattern_of(say):
    return re.compile("|".join(rf"\b({pattern})\b" for _, pattern in say))


PATTERN, PAGE_PATTERN = pattern_of(SAY), pattern_of(SAY_IN_PAGES)


def comments(text):
    """(offset, text without line breaks and stars, of the same length) of each comment."""
    for match in COMMENT.finditer(STRING.sub(lambda string: '"' + "x" * (len(string[0]) - 2) + '"', text)):
        yield match.start(), re.sub(r"\n *\*?", lambda gap: " " * len(gap[0]), match[0])


def check_source(path, text):
    for start, comment in comments(text):
        squeezed = re.sub(r" +", " ", comment)
        for match in PATTERN.finditer(squeezed):
            words = re.escape(match[0]).replace(r"\ ", " +")
            line = text.count("\n", 0, start + re.search(words, comment).start()) + 1
            yield f'{path}:{line}: say "{SAY[match.lastindex - 1][0]}", not "{match[0]}"'


def read_pages(root):
    names = ["README.md", "server/FIELDS.md", *(str(path.relative_to(root)) for path in sorted(root.glob("docs/*.md")))]
    return {name: (root / name).read_text() for name in names if name != GENERATED and (root / name).exists()}


def check_page(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        for match in PAGE_PATTERN.finditer(line):
            yield f'{path}:{number}: say "{SAY_IN_PAGES[match.lastindex - 1][0]}", not "{match[0]}"'


def main():
    root = Path(sys.argv[1])
    sources, pages = read_sources(root), read_pages(root)
    errors = [error for path, text in sources.items() for error in check_source(path, text)]
    errors += [error for path, text in pages.items() for error in check_page(path, text)]
    print("\n".join(errors) or f"{len(sources)} sources and {len(pages)} pages say it plainly")
    return 1 if errors or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
