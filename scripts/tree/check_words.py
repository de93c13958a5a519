#!/usr/bin/env python3
"""Looks in the comments of the sources for turns of phrase that CONTRIBUTING.md lists under "do not say": those
that have no other meaning. Prints each as FILE:LINE; exits 1 when there is any.
Usage: check_words.py ROOT"""

import re
import sys
from pathlib import Path

from source_tree import COMMENT, STRING, read_sources

SAY = [
    ("after", r"[Bb]ehind (?:the|it|its|them|those|these)"),
    ("n, that many", r"[Ss]o many(?! [\w ]+ that\b)"),
    ("is not a", r"(?<![Tt]here )(?:is|are) no (?!longer|more|one|other|end)\w+"),
    ("continues", r"(?:goes|go|went) on(?! (?:the|a|with) )"),
    ("like X", r"as [\w']+ (?:has|have) it"),
    ("next to, in addition to", r"[Bb]eside"),
    ("forever", r"for ever"),
]
PATTERN = re.compile("|".join(rf"\b({pattern})\b" for _, pattern in SAY))


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


def main():
    sources = read_sources(Path(sys.argv[1]))
    errors = [error for path, text in sources.items() for error in check_source(path, text)]
    print("\n".join(errors) or f"{len(sources)} sources say it plainly")
    return 1 if errors or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
