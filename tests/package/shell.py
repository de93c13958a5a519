"""An interactive shell on a terminal of its own, to press the tabulator in."""

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07|[\x00-\x08\x0e-\x1f]")


class Shell:
    """With a prompt that is nothing else, after the lines of setup were run."""

    def __init__(self, arguments, setup, folder):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(arguments[0], arguments, {"PATH": os.environ["PATH"], "TERM": "xterm", "HOME": str(folder)})
        # Wide and high, so that nothing is folded or asked about.
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 400, 300, 0, 0))
        self.count = 0
        self.ask(setup, "\n")

    def ask(self, line, key, quiet_s=0):
        """What is shown between typing the line with that key and what a command typed behind it prints. A shell that sees
        more keys waiting may not list anything, so they come when it has been quiet for so long."""
        self.count += 1
        os.write(self.terminal, (line + key).encode())
        shown = ""
        while quiet_s and select.select([self.terminal], [], [], quiet_s)[0]:
            shown += os.read(self.terminal, 65536).decode(errors="replace")
        # \x15 empties the line; the answer has no "+" in it, unlike its echo.
        os.write(self.terminal, f"\x15echo done+{self.count} | tr + =\n".encode())
        return self.read_until(f"done={self.count}", shown)

    def read_until(self, text, shown, limit_s=60):
        deadline = time.monotonic() + limit_s
        while text not in shown:
            if not select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"the shell did not get to {text!r}: {shown!r}")
            shown += os.read(self.terminal, 65536).decode(errors="replace")
        return ESCAPES.sub("", shown)

    def complete(self, line, expected):
        """Presses the tabulator behind the line, and fails unless the words expected are shown: again and with more
        patience, as a machine may be slow. Returns all that is shown."""
        for quiet_s in (0.3, 1, 3, 10):
            words = set(re.findall(r"[^\s'\"]+", self.ask(line, "\t", quiet_s).split("echo done")[0]))
            if expected <= words:
                return words
        raise AssertionError(f"{line!r} does not offer {expected - words}, but {words}")

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.pid, 0)
