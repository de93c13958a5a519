#!/usr/bin/env python3
"""Prints where NVIDIA's packages for Python keep cuBLASLt: the folder of its header, then the library; nothing
where there is none. A toolkit without cuBLAS is completed by them (pip's nvidia-cublas, as torch brings it).

Usage: find_cublaslt.py [FOLDER]...        folders of packages; as this Python has them where none is given
"""

import sys
from pathlib import Path

PACKAGES = ("nvidia/cu13", "nvidia/cublas")
HEADER, LIBRARY = "include/cublasLt.h", "lib/libcublasLt.so.13"  # there is no plain .so


def find(folders):
    for folder in folders:
        for package in PACKAGES:
            home = Path(folder) / package
            if (home / HEADER).is_file() and (home / LIBRARY).is_file():
                return home
    return None


def main():
    home = find(sys.argv[1:] or sys.path)
    if home is not None:
        print((home / HEADER).parent.resolve(), home.resolve() / LIBRARY, sep="\n")


if __name__ == "__main__":
    main()
