#!/usr/bin/env python3
"""What `meson install` installs, without installing it: by `meson introspect --installed` the same files as the package has
(scripts/package/contents.txt), but for those of Debian's own; and the units of the build name the program and the configuration of the
chosen prefix. Usage: check_installed.py BUILD CONTENTS."""

import json
import re
import subprocess
import sys
from pathlib import Path

# What debian/rules and debhelper add, and what they call differently.
DEBIAN = re.compile(r"/etc/quire/|README\.Debian|copyright$|/changelog|sysusers\.d")
RENAMED = [(r"\.gz$", ""), (r"^\./lib/systemd", "./usr/lib/systemd"), ("vendor-completions", "site-functions")]


def packaged(contents):
    for line in contents.read_text().splitlines():
        if DEBIAN.search(line):
            continue
        for old, new in RENAMED:
            line = re.sub(old, new, line)
        yield re.sub(r"^\./usr/", "", line)


def main():
    build, contents = Path(sys.argv[1]), Path(sys.argv[2])
    introspected = subprocess.run(["meson", "introspect", "--installed", build], stdout=subprocess.PIPE, text=True, check=True)
    options = subprocess.run(["meson", "introspect", "--buildoptions", build], stdout=subprocess.PIPE, text=True, check=True)
    options = {option["name"]: option["value"] for option in json.loads(options.stdout)}
    prefix = options["prefix"]
    installed = {str(Path(path).relative_to(prefix)) for path in json.loads(introspected.stdout).values()}
    installed = {path for path in installed if not path.endswith(("libquire-cuda.so", "libquire-mpi.so"))}
    expected = set(packaged(contents)) | {"share/doc/quire/LICENSE", "share/doc/quire/CHANGELOG.md"}
    assert installed == expected, f"more: {installed - expected}, less: {expected - installed}"

    unit = (build / "scripts/package/quire.service").read_text()
    config = Path(prefix) / options["sysconfdir"] / "quire"
    assert f"\nExecStart={prefix}/{options['bindir']}/quire serve " in unit
    assert f"\nLoadCredential=quire.yaml:{config}/quire.yaml\n" in unit
    print(f"{len(installed)} files")


if __name__ == "__main__":
    main()
