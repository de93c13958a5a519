#!/usr/bin/env python3
"""Writes debian/changelog from CHANGELOG.md: an entry for each release, and for the version being built one with what is
unreleased. Usage: debian_changelog.py CHANGELOG VERSION MAINTAINER TIME. The format: deb-changelog(5)."""

import email.utils
import re
import sys
import textwrap
from datetime import datetime, timezone
from pathlib import Path


def releases(text):
    """(version or "Unreleased", date or None, items) of each section."""
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        version, date = re.fullmatch(r"\[([\w.]+)\](?: - (\d{4}-\d\d-\d\d))?", heading).groups()
        items = re.findall(r"^- (.*(?:\n  .*)*)", body, re.MULTILINE)
        yield version, date, [re.sub(r"\s+", " ", item) for item in items]


def entry(version, items, maintainer, time):
    lines = [f"quire ({version}) bookworm; urgency=medium", ""]
    for item in items:
        lines += textwrap.wrap(item, 76, initial_indent="  * ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join([*lines, "", f" -- {maintainer}  {email.utils.formatdate(time)}", ""])


def main():
    text, version, maintainer, time = Path(sys.argv[1]).read_text(), sys.argv[2], sys.argv[3], int(sys.argv[4])
    entries = []
    for release, date, items in releases(text):
        if date is None:
            if items and version.rpartition("-")[0] not in re.findall(r"^## \[([\d.]+)\]", text, re.MULTILINE):
                entries.append(entry(version, items, maintainer, time))
            continue
        noon = datetime.fromisoformat(date).replace(tzinfo=timezone.utc)
        entries.append(entry(f"{release}-1", items, maintainer, min(int(noon.timestamp()), time)))
    print("\n".join(entries), end="")


if __name__ == "__main__":
    main()
