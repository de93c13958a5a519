#!/bin/sh
# Checks every C source against .clang-format; `scripts/tree/format.sh fix` rewrites them instead.
# Exits 77 (skipped, for Meson) where there is no clang-format.
set -eu
cd "$(dirname "$0")/../.."

command -v clang-format >/dev/null || { echo "clang-format is not installed"; exit 77; }

case "${1:-check}" in
check) set -- --dry-run -Werror ;;
fix) set -- -i ;;
*) echo "usage: scripts/tree/format.sh [check|fix]" >&2; exit 2 ;;
esac
find config kernels models engine server scripts tests \( -name '*.c' -o -name '*.h' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' \
    -o -name '*.cpp' \) \
    -exec clang-format "$@" {} +
