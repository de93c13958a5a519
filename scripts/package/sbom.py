#!/usr/bin/env python3
"""A bill of materials in CycloneDX 1.5 (https://cyclonedx.org/docs/1.5/json/). As a program, of a binary that uses this
system's libraries: sbom.py BINARY VERSION > FILE."""

import hashlib
import json
import os
import re
import subprocess
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path

MICROHTTPD = Path(__file__).resolve().parents[2] / "subprojects"


def licences_of(copyright_text):
    """The short names of a copyright file in Debian's machine-readable form; one that is not in it is named as a whole."""
    names = re.findall(r"^License: *(\S.*)$", copyright_text, re.MULTILINE)
    return [{"license": {"name": name}} for name in sorted(set(names))] or [{"license": {"name": "see licenses/ or the package"}}]


def component(package, version, copyright_text, file, digest):
    return {"type": "library", "bom-ref": f"{package}/{file}", "name": package, "version": version,
            "purl": f"pkg:deb/debian/{package}@{version}?arch=amd64", "licenses": licences_of(copyright_text),
            "hashes": [{"alg": "SHA-256", "content": digest}], "properties": [{"name": "file", "value": file}]}


def microhttpd():
    """What is compiled in: its source as it was packaged, before the patch."""
    wrap = (MICROHTTPD / "libmicrohttpd.wrap").read_text()
    version = re.search(r"directory = libmicrohttpd-(\S+)", wrap)[1]
    return {"type": "library", "bom-ref": "libmicrohttpd", "name": "libmicrohttpd", "version": version,
            "purl": f"pkg:generic/libmicrohttpd@{version}", "licenses": [{"license": {"id": "LGPL-2.1-or-later"}}],
            "hashes": [{"alg": "SHA-256", "content": re.search(r"source_hash = (\w+)", wrap)[1]}],
            "properties": [{"name": "linked", "value": "statically, with subprojects/packagefiles/libmicrohttpd/quire.patch"}]}


# Parts of these are in the chat page (server/page/embed_page.py).
PAGE_LIBRARIES = {"libjs-markdown-it": "MIT", "libjs-katex": "MIT", "fonts-katex": "OFL-1.1", "libjs-highlight.js": "BSD-3-Clause"}


def page_libraries():
    """What the program was built with, by this machine's packages: all of them or, as in server/page/meson.build, none."""
    versions = {package: query([], "-W", "-f", "${Version}", package) for package in PAGE_LIBRARIES}
    if not all(versions.values()):
        return
    for package, licence in PAGE_LIBRARIES.items():
        package_version = versions[package]
        sums = (Path("/var/lib/dpkg/info") / f"{package}.md5sums").read_text()
        yield {"type": "library", "bom-ref": package, "name": package, "version": package_version,
               "purl": f"pkg:deb/debian/{package}@{package_version}?arch=all", "licenses": [{"license": {"id": licence}}],
               "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(sums.encode()).hexdigest()}],
               "properties": [{"name": "linked", "value": "in the chat page; the hash is of the package's list of checksums"}]}


def document(version, program_digest, components):
    components = sorted([*components, *page_libraries(), microhttpd()], key=lambda item: item["bom-ref"])
    time = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
           "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, program_digest)}",
           "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
                        "component": {"type": "application", "bom-ref": "quire", "name": "quire", "version": version,
                                      "licenses": [{"license": {"id": "Apache-2.0"}}],
                                      "hashes": [{"alg": "SHA-256", "content": program_digest}]}},
           "components": components,
           "dependencies": [{"ref": "quire", "dependsOn": [item["bom-ref"] for item in components]}]}
    return json.dumps(bom, indent=1) + "\n"


def query(admin, *words):
    """dpkg-query's answer, or "" where it has none."""
    return subprocess.run(["dpkg-query", *admin, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def owner(path, admin=()):
    """The Debian package that a library's file is from, and its version; dpkg may know the file with or without /usr."""
    short = str(path).removeprefix("/usr")
    for name in (short, "/usr" + short):
        package = query(admin, "-S", name).partition(":")[0]
        if package:
            return package, query(admin, "-W", "-f", "${Version}\n", package).split("\n")[0]
    raise SystemExit(f"no package has {path}")


def system_components(binary):
    """The libraries that this system's loader finds for it, but for its own parts."""
    loaded = subprocess.run(["ldd", binary], stdout=subprocess.PIPE, text=True, check=True).stdout
    for path in sorted(set(re.findall(r"=> (/\S+)", loaded))):
        file = Path(path).resolve()
        package, version = owner(file)
        text = (Path("/usr/share/doc") / package / "copyright").read_text()
        yield component(package, version, text, Path(path).name, hashlib.sha256(file.read_bytes()).hexdigest())


def main():
    binary, version = sys.argv[1:3]
    digest = hashlib.sha256(Path(binary).read_bytes()).hexdigest()
    print(document(version, digest, list(system_components(binary))), end="")


if __name__ == "__main__":
    main()
