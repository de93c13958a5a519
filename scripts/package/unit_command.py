#!/usr/bin/env python3
"""Prints, as a shell script, what systemd does to start a service, for systems where it does not run: makes the folders and the
credentials that the unit asks for and runs ExecStart= as its user. What it takes from the process (namespaces, system calls) is
left out. Usage: unit_command.py ROOT UNIT, the path of the unit in a system whose files lie below ROOT; drop-ins are read as well."""

import re
import shlex
import sys
from pathlib import Path

FOLDERS = {"StateDirectory": ("/var/lib", "STATE_DIRECTORY"), "CacheDirectory": ("/var/cache", "CACHE_DIRECTORY"),
           "RuntimeDirectory": ("/run", "RUNTIME_DIRECTORY")}


def settings(root, unit):
    """The values of each key of [Service], the unit's and its drop-ins'; an empty value clears those before."""
    values, section = {}, None
    drop_ins = sorted((root / (unit.lstrip("/") + ".d")).glob("*.conf"))
    for file in [root / unit.lstrip("/"), *drop_ins]:
        for line in re.sub(r"\\\n", " ", file.read_text()).splitlines():
            if re.fullmatch(r"\[\w+\]", line):
                section = line
            elif section == "[Service]" and "=" in line and line[0] not in "#;":
                key, _, value = line.partition("=")
                values[key] = values.get(key, []) + [value] if value else []
    return values


def main():
    root, unit = Path(sys.argv[1]), sys.argv[2]
    service = settings(root, unit)
    user, umask = service["User"][-1], service.get("UMask", ["0022"])[-1]
    credentials = f"/run/credentials/{Path(unit).name}"
    lines = ["set -e", f"install -d -m 700 -o {user} {credentials}"]
    variables = [f"CREDENTIALS_DIRECTORY={credentials}"]
    for credential in service.get("LoadCredential", []):
        name, _, source = credential.partition(":")
        lines.append(f"install -m 400 -o {user} {source} {credentials}/{name}")
    for key, (parent, variable) in FOLDERS.items():
        for name in service.get(key, []):
            mode = service.get(f"{key}Mode", ["0755"])[-1]
            lines.append(f"install -d -m {mode} -o {user} -g {user} {parent}/{name}")
            variables.append(f"{variable}={parent}/{name}")
    variables += service.get("Environment", [])
    command = service["ExecStart"][-1].replace("%d", credentials).replace("%C", "/var/cache")
    lines += [f"umask {umask}", f"ulimit -n {service['LimitNOFILE'][-1]}",
              f"exec setpriv --reuid={user} --regid={user} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "
              f"env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin {shlex.join(variables)} {command}"]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
