#!/usr/bin/env python3
"""kernels/cuda/find_cublaslt.py in folders laid out as NVIDIA's packages for Python are."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[4] / "kernels/cuda/find_cublaslt.py"


class FindCublasLt(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.site = Path(self.folder.name).resolve()
        self.addCleanup(self.folder.cleanup)

    def lay_out(self, site, package, *files):
        for name in files:
            path = self.site / site / "nvidia" / package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def find(self, *sites):
        done = subprocess.run([sys.executable, SCRIPT, *(self.site / site for site in sites)],
                              stdout=subprocess.PIPE, text=True, check=True)
        return [str(Path(line).relative_to(self.site)) for line in done.stdout.splitlines()]

    def test_both_layouts(self):
        for package in ("cu13", "cublas"):
            self.lay_out(package, package, "include/cublasLt.h", "lib/libcublasLt.so.13")
            self.assertEqual(self.find("empty", package),
                             [f"{package}/nvidia/{package}/include",
                              f"{package}/nvidia/{package}/lib/libcublasLt.so.13"])

    def test_another_version_or_half_a_package(self):
        self.lay_out("twelve", "cublas", "include/cublasLt.h", "lib/libcublasLt.so.12")
        self.lay_out("no_header", "cu13", "lib/libcublasLt.so.13")
        self.lay_out("no_library", "cu13", "include/cublasLt.h")
        self.assertEqual(self.find("twelve", "no_header", "no_library"), [])


if __name__ == "__main__":
    unittest.main()
