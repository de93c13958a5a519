"""A program in a terminal of its own (a pseudo terminal and pyte's screen), driven by keys and compared as a screen."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time

import pyte

WAIT_SECONDS = 60
UP, DOWN, CTRL_A, CTRL_C, CTRL_D = "\x1b[A", "\x1b[B", "\x01", "\x03", "\x04"


class Terminal:
    """`with Terminal(words, environment) as t`; `t.received` has every byte that the program wrote."""

    def __init__(self, words, environment, columns=80, lines=24):
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.received, self.status = b"", None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(str(words[0]), [str(word) for word in words], {**environment, "TERM": "xterm"})
        self.set_size(columns, lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def set_size(self, columns, lines):
        self.screen.resize(lines, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def receive(self, seconds):
        """Takes what the program writes; returns whether it still has the terminal."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        data = b""
        with contextlib.suppress(OSError):  # EIO: nobody has the other end
            data = os.read(self.fd, 65536)
        self.received += data
        self.stream.feed(data)
        return bool(data)

    def text(self):
        """The lines of the screen without blanks at their ends, up to the last that is not empty."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def wait_for(self, condition):
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition(self.text()):
            assert time.monotonic() < deadline and self.receive(1), f"not on the screen:\n{self.text()}"
        return self.text()

    def wait_for_text(self, text):
        return self.wait_for(lambda screen: text in screen)

    def wait_for_prompt(self, mark=">"):
        """The last line is an empty prompt, and the cursor behind it."""
        return self.wait_for(lambda screen: screen.rsplit("\n", 1)[-1] == mark and self.screen.cursor.x == 2)

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait_until_ended(self):
        deadline = time.monotonic() + WAIT_SECONDS
        while self.receive(1):
            assert time.monotonic() < deadline, f"still there:\n{self.text()}"
        _, status = os.waitpid(self.pid, 0)
        self.status = os.waitstatus_to_exitcode(status)
        return self.status
