#!/usr/bin/env python3
"""Whether packages are built with all that a build by hand is: what scripts/setup.sh installs for it is in Build-Depends, except for
what others bring or only tests need, and its libraries are in the tarball's system. Usage: check_build_depends.py SETUP CONTROL
TARBALL."""

import re
import sys
from pathlib import Path

# build-essential has the first two, Meson the third.
IMPLIED = {"gcc", "libc6-dev", "ninja-build", "libcmocka-dev"}


def main():
    setup, control, tarball = (Path(path).read_text() for path in sys.argv[1:4])
    installed = set(re.search(r"^BUILD_PACKAGES=\(([^)]*)\)", setup, re.MULTILINE)[1].split())
    field = re.search(r"^Build-Depends:((?:\n .*)+)", control, re.MULTILINE)[1]
    built_with = set(re.findall(r"^ ([a-z0-9.+-]+)", field, re.MULTILINE))
    missing = installed - IMPLIED - built_with
    if missing:
        sys.exit(f"not in Build-Depends of debian/control: {' '.join(sorted(missing))}")
    libraries = {name for name in installed - IMPLIED if re.fullmatch("lib.*-dev", name)}
    missing = libraries - set(re.findall(r"[a-z0-9.+-]+", tarball))
    if missing:
        sys.exit(f"in no list of scripts/package/tarball: {' '.join(sorted(missing))}")
    print(f"{len(installed)} packages, {len(libraries)} libraries")


if __name__ == "__main__":
    main()
