#!/usr/bin/env python3
"""Puts the libraries that the program needs into its lib/quire, with their licences, and writes sbom.cdx.json.
Usage: bundle.py FOLDER VERSION SYSROOT "PACKAGE ..."; the packages are this machine's, other libraries are the sysroot's."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import elf_file
import sbom

LIBRARY_DIRS = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")


def find_library(name, sysroot):
    for folder in LIBRARY_DIRS:
        if (sysroot / folder / name).exists():
            return sysroot / folder / name
    raise SystemExit(f"{name} is not in {sysroot}")


def bundle_libraries(program, target, sysroot):
    """Copies what the program needs, what that needs, and so on; each finds the others in its own folder."""
    target.mkdir(parents=True, exist_ok=True)
    waiting, found = elf_file.needed(program), {}
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = find_library(name, sysroot)
        copy = target / name
        shutil.copyfile(found[name].resolve(), copy)
        copy.chmod(0o644)
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", copy], check=True)
        waiting += elf_file.needed(copy)
    return found


def package_of(path, sysroot, packages):
    """The Debian package that a library is from: (name, version, its copyright file)."""
    inside = Path("/") / path.resolve().relative_to(sysroot.resolve())
    if Path(inside).exists() and (found := sbom.owner(inside.resolve()))[0] in packages:
        return *found, Path("/usr/share/doc") / found[0] / "copyright"
    package, version = sbom.owner(inside, [f"--admindir={sysroot}/var/lib/dpkg"])
    return package, version, sysroot / "usr/share/doc" / package / "copyright"


def main():
    folder, version, sysroot, packages = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4].split()
    libraries = folder / "lib/quire"
    components, licences = [], folder / "licenses"
    licences.mkdir()
    for name, path in sorted(bundle_libraries(folder / "bin/quire", libraries, sysroot).items()):
        package, package_version, copyright_file = package_of(path, sysroot, packages)
        shutil.copyfile(copyright_file.resolve(), licences / package)
        digest = hashlib.sha256((libraries / name).read_bytes()).hexdigest()
        components.append(sbom.component(package, package_version, copyright_file.read_text(), name, digest))
    for package in sbom.PAGE_LIBRARIES:
        shutil.copyfile(Path("/usr/share/doc") / package / "copyright", licences / package)
    program = hashlib.sha256((folder / "bin/quire").read_bytes()).hexdigest()
    (folder / "sbom.cdx.json").write_text(sbom.document(version, program, components))


if __name__ == "__main__":
    main()
