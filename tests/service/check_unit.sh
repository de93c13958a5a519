#!/bin/sh
# The systemd units: no unknown key, no bad value, and exposure scores of at most 1.2 on the CPU and 2.0 on a GPU.
# Usage: check_unit.sh CONFIG_FOLDER UNIT_FOLDER, where quire@.service was made of quire.service. Exits 77 (skipped) where there is no systemd-analyze.
set -eu
command -v systemd-analyze >/dev/null || { echo "systemd-analyze is not installed"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# verify insists that ExecStart= exists, which it does only on an installed machine.
mkdir -p "$folder/cpu" "$folder/gpu/quire.service.d"
unit=$folder/cpu/quire.service
sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' "$1/quire.service" >"$unit"
cp "$1/quire.socket" "$folder/cpu"
sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' "$2/quire@.service" >"$folder/cpu/quire@.service"
cp "$unit" "$1/quire.socket" "$folder/gpu"
cp "$1/quire-gpu.conf" "$folder/gpu/quire.service.d/gpu.conf"

verify() { SYSTEMD_UNIT_PATH="$folder/$1:" systemd-analyze verify --man=no --recursive-errors=no "$folder/$1/$2"; }
for form in cpu gpu; do
    verify $form quire.service
    verify $form quire.socket
done
verify cpu quire@8001.service
grep -q '^ExecStart=.* --port %i$' "$folder/cpu/quire@.service" || { echo "the instance is not the port" >&2; exit 1; }

# It starts and reloads with what every system has: /bin/kill is of a package (Debian: procps) that may be missing.
others=$(sed -n 's/^Exec[A-Za-z]*=\([^ ]*\).*/\1/p' "$unit" | grep -vx '/bin/true\|/bin/sh' || true)
[ -z "$others" ] || { echo "the unit runs $others" >&2; exit 1; }

# What the program supports is switched on: sd_notify, the watchdog, reloading, and what must not be retried.
for line in Type=notify 'WatchdogSec=[1-9]' 'ExecReload=.*kill -HUP \$MAINPID' RestartPreventExitStatus=78; do
    grep -q "^$line" "$unit" || { echo "the unit lacks $line" >&2; exit 1; }
done

# The check itself must be able to fail: for the unit, the socket and what the GPU adds.
for broken in cpu:quire.service:Private cpu:quire.socket:IPAddressDeny gpu:quire.service.d/gpu.conf:PrivateDevices; do
    form=${broken%%:*} file=${broken#*:}
    key=${file#*:} file=${file%%:*}
    cp -r "$folder/$form" "$folder/broken"
    sed -i "s|^\($key[A-Za-z]*\)=.*|\1=perhaps|" "$folder/broken/$file"
    if verify broken "${file%%.d/*}" 2>/dev/null; then
        echo "verify accepts a broken $file" >&2
        exit 1
    fi
    rm -r "$folder/broken"
done

# score FORM THRESHOLD: in tenths.
score() {
    report=$(SYSTEMD_UNIT_PATH="$folder/$1:" systemd-analyze security --offline=true --threshold="$2" "$folder/$1/quire.service") ||
        { echo "$report"; exit 1; }
    echo "$1: $(echo "$report" | tail -1)"
}
score cpu 12
score gpu 20
