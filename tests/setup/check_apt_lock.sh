#!/bin/bash
# What scripts/setup.sh does while another program holds apt's locks: waits, says so once, goes on
# when they are free, and gives up in time. With the real apt-get, in a folder of its own.
# Usage: check_apt_lock.sh SETUP_SH. Exits 77 (skipped) where there is no apt-get.
set -euo pipefail
command -v apt-get >/dev/null || { echo "apt-get is not installed"; exit 77; }
. "$1"

folder=$(mktemp -d)
trap 'rm -rf "$folder"; kill $(jobs -p) 2>/dev/null || true' EXIT
mkdir -p "$folder"/{lists,cache/archives,etc,dpkg/updates}
touch "$folder/dpkg/status"
cat >"$folder/apt.conf" <<CONF
Dir::State "$folder";
Dir::State::lists "$folder/lists";
Dir::State::status "$folder/dpkg/status";
Dir::Cache "$folder/cache";
Dir::Etc "$folder/etc";
CONF
export APT_CONFIG=$folder/apt.conf
as_root() { "$@"; }

declare -A holders

# hold FILE: an fcntl lock, as apt takes them, by a process that ends with the file FILE.held.
hold() {
    python3 - "$1" <<'PYTHON' &
import fcntl, os, sys, time
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
open(sys.argv[1] + ".held", "w").close()
while os.path.exists(sys.argv[1] + ".held"):
    time.sleep(0.02)
PYTHON
    holders[$1]=$!
    until [ -e "$1.held" ]; do sleep 0.02; done
}

# release FILE: the lock is free when this returns.
release() {
    rm "$1.held"
    wait "${holders[$1]}"
}

# wait_for COUNT TEXT: until the log has that many lines with the text.
wait_for() {
    until [ "$(grep -c "$2" "$folder/log")" -ge "$1" ]; do
        [ -d "/proc/$program" ] || { cat "$folder/log"; echo "ended before it said: $2"; exit 1; }
        sleep 0.02
    done
}

expect() { grep -q "$1" "$folder/log" || { cat "$folder/log"; echo "lacks: $1"; exit 1; }; }

# Both locks: first the lists', which update wants, then dpkg's.
hold "$folder/lists/lock"
hold "$folder/dpkg/lock-frontend"
(install_packages quire-no-such-package) >"$folder/log" 2>&1 &
program=$!
wait_for 1 "waiting until another program .*lists/lock"
release "$folder/lists/lock"
wait_for 1 "waiting until another program .*lock-frontend"
release "$folder/dpkg/lock-frontend"
! wait $program || { echo "a package that does not exist was installed"; exit 1; }
expect "Unable to locate package quire-no-such-package" # so both were done, and other errors are shown
[ "$(grep -c waiting "$folder/log")" = 2 ] || { cat "$folder/log"; echo "it did not say twice that it waits"; exit 1; }

# No longer than allowed.
hold "$folder/lists/lock"
! (APT_WAIT_SECONDS=0; apt_get update -q) >"$folder/log" 2>&1 || { echo "it did not give up"; exit 1; }
expect "gave up after 0 s: another program uses apt, lock $folder/lists/lock"
release "$folder/lists/lock"

# A lock that is free is not waited for.
apt_get update -q >"$folder/log" 2>&1
! grep -q waiting "$folder/log" || { cat "$folder/log"; echo "it waited for a free lock"; exit 1; }
