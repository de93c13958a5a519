#!/usr/bin/env python3
"""Two ranks of check_mpi, the second of which is lost between two sums: check_lost_rank.py MPIRUN CHECK_MPI killed|silent.
Nobody waits for it for ever: rank 0 says within its timeout that rank 1 is missing, or mpirun says it first."""

import re
import subprocess
import sys

ANSWERS = {
    "killed": r"rank 0: rank 1 (cannot be reached|has not answered within 2 s)|signal 9|Killed",
    "silent": r"rank 0: rank 1 has not answered within 2 s \(--rank-timeout\)",
}


def main():
    mpirun, check, loss = sys.argv[1:]
    done = subprocess.run([mpirun, "-n", "2", check, loss], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=100)
    print(done.stdout)
    sums = len(re.findall(r"rank [01]: the first sum is right", done.stdout))
    if sums != 2 or done.returncode == 0 or not re.search(ANSWERS[loss], done.stdout):
        sys.exit(f"{sums} of 2 ranks added, and mpirun ended with status {done.returncode}: not as it should be")


if __name__ == "__main__":
    main()
