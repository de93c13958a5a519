#!/usr/bin/env python3
"""Whether a tarball runs wherever it says: no symbol of a glibc newer than 2.31, every library that is needed and not glibc's is
inside and found by the run paths, each with a licence; no instruction set but the baseline's is asked for by the loader.
Usage: check_bundle.py TARBALL."""

import json
import sys
import tarfile
import tempfile
from pathlib import Path

import elf_file

NEWEST_GLIBC = (2, 31)


def check_file(file, libraries, expected_path):
    assert elf_file.newest_glibc(file) <= NEWEST_GLIBC, f"{file.name} needs glibc {elf_file.newest_glibc(file)}"
    missing = [name for name in elf_file.needed(file) if not (libraries / name).exists()]
    assert not missing, f"{file.name} needs {missing}"
    assert elf_file.run_path(file) == expected_path, f"{file.name} looks in {elf_file.run_path(file)!r}"


def main():
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(sys.argv[1]) as archive:
            archive.extractall(name, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(name)
        root, = Path(name).iterdir()
        libraries = root / "lib/quire"
        check_file(root / "bin/quire", libraries, "$ORIGIN/../lib/quire")
        for file in sorted(libraries.iterdir()):
            check_file(file, libraries, "$ORIGIN")
        parts = json.loads((root / "sbom.cdx.json").read_text())["components"]
        files = {item["value"] for part in parts for item in part.get("properties", []) if item["name"] == "file"}
        assert files == {file.name for file in libraries.iterdir()}
        assert all((root / "licenses" / part["name"]).exists() for part in parts if part["name"] != "libmicrohttpd")
        for file in ("LICENSE", "share/man/man1/quire.1", "share/doc/quire/config/quire.yaml", "share/doc/quire/README.md",
                     "share/bash-completion/completions/quire.bash", "share/zsh/site-functions/_quire", "lib/systemd/system/quire.service"):
            assert (root / file).is_file(), file
        newest = max(elf_file.newest_glibc(file) for file in [root / "bin/quire", *libraries.iterdir()])
        print(f"{len(files)} libraries inside; the newest glibc asked for is {newest[0]}.{newest[1]}")


if __name__ == "__main__":
    main()
