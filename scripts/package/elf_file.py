"""What readelf and objdump say of a program or library."""

import re
import subprocess

# Every system has these: the parts of glibc.
GLIBC = re.compile(r"(libc|libm|libdl|libpthread|librt|libresolv|libmvec|libutil)\.so\.\d|ld-linux-x86-64\.so\.2")


def output(*words):
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True, check=True).stdout


def needed(file):
    """The libraries that it names and that are not glibc's."""
    names = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", file))
    return [name for name in names if not GLIBC.fullmatch(name)]


def run_path(file):
    return "".join(re.findall(r"\(RUNPATH\).*\[(.*)\]", output("readelf", "-dW", file)))


def newest_glibc(file):
    """The highest version of glibc that a symbol of it asks for, as (2, 31)."""
    versions = re.findall(r"\(?GLIBC_(\d+)\.(\d+)", output("objdump", "-T", file))
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))
