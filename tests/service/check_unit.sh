#!/bin/sh
# The systemd unit: no unknown key, no bad value, and an exposure score of at most 2.0.
# Usage: check_unit.sh UNIT_FILE. Exits 77 (skipped) where there is no systemd-analyze.
set -eu
command -v systemd-analyze >/dev/null || { echo "systemd-analyze is not installed"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# verify insists that ExecStart= exists, which it does only on an installed machine.
unit=$folder/quire.service
sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' "$1" >"$unit"
systemd-analyze verify --recursive-errors=no "$unit"

# What the program supports is switched on: sd_notify, the watchdog, reloading, and what must not be retried.
for line in Type=notify 'WatchdogSec=[1-9]' 'ExecReload=/bin/kill -HUP \$MAINPID' RestartPreventExitStatus=78; do
    grep -q "^$line" "$unit" || { echo "the unit lacks $line" >&2; exit 1; }
done

# The check itself must be able to fail.
sed 's|^PrivateTmp=.*|PrivateTmp=perhaps|' "$unit" >"$folder/broken.service"
if systemd-analyze verify --recursive-errors=no "$folder/broken.service" 2>/dev/null; then
    echo "verify accepts a broken unit" >&2
    exit 1
fi

report=$(systemd-analyze security --offline=true --threshold=20 "$unit") || { echo "$report"; exit 1; }
echo "$report" | tail -1
