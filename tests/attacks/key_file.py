"""A file of API keys with names and limits, made by `quire key new`."""

import subprocess


def quire_key(binary, *words):
    return subprocess.run([str(binary), "key", *map(str, words)], capture_output=True, text=True, timeout=60)


class KeyFile:
    """keys[name] is the secret, entries[name] what the file says of it."""

    def __init__(self, binary, path):
        self.binary, self.path, self.keys, self.entries = binary, path, {}, {}

    def add(self, name, *options):
        made = quire_key(self.binary, "new", name, *options)
        assert made.returncode == 0, made.stderr
        self.keys[name], self.entries[name] = made.stderr.strip(), made.stdout
        return self.write()

    def write(self):
        self.path.write_text("keys:\n" + "".join(self.entries.values()))
        self.path.chmod(0o600)
        return self
