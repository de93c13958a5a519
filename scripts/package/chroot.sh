# Sourced by the scripts beside it: Debian systems in a folder, made once with this machine's apt settings and kept below
# ~/.cache/quire/chroots; commands in them have processes and mounts of their own. Needs root.
CHROOTS_DIR=$CACHE_DIR/chroots
CHROOT_ENVIRONMENT=(env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
                    DEBIAN_FRONTEND=noninteractive)
CHROOT_PACKAGES=(mmdebstrap procps util-linux)

# The options of this machine's apt that a new system needs to reach the same archives, in a file.
apt_settings() { apt-config dump Acquire | grep -v '^Acquire::\(Languages\|Changelogs\|CompressionTypes\)' || true; }

# apt_sources SUITE: this machine's sources of Debian 12, of that release.
apt_sources() {
    local file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
        if [ -f "$file" ] && grep -q bookworm "$file" && grep -q debian "$file"; then
            sed "s/bookworm/$1/g" "$file"
        fi
    done
}

# make_system SUITE FORM OUTPUT MMDEBSTRAP_OPTION...: by mmdebstrap, into a tarball or a folder.
make_system() {
    local suite=$1 form=$2 output=$3 folder
    shift 3
    folder=$(mktemp -d)
    apt_settings >"$folder/settings"
    apt_sources "$suite" >"$folder/debian.sources"
    say "making a system of $suite"
    mmdebstrap --quiet --variant="$form" --aptopt="$folder/settings" "$@" "$suite" "$output" "$folder/debian.sources" >&2 ||
        { rm -rf "$folder" "$output"; return 1; }
    rm -rf "$folder"
}

# chroot_tarball SUITE: prints the path of a minimal system, made if it is not there.
chroot_tarball() {
    local tarball=$CHROOTS_DIR/$1-minbase.tar
    if [ ! -f "$tarball" ]; then
        mkdir -p "$CHROOTS_DIR"
        make_system "$1" minbase "$tarball.part.tar" || return 1
        mv "$tarball.part.tar" "$tarball"
    fi
    echo "$tarball"
}

# unpack_chroot SUITE FOLDER: a fresh minimal system, without network configuration of its own.
unpack_chroot() {
    local tarball
    tarball=$(chroot_tarball "$1")
    mkdir -p "$2"
    tar -x -C "$2" -f "$tarball"
    cp /etc/resolv.conf /etc/hosts "$2/etc/"
}

# in_chroot FOLDER COMMAND...: with /proc, as root, in an environment of its own.
in_chroot() {
    local folder=$1
    shift
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child bash -c 'mount -t proc proc "$1/proc" && shift && exec "$@"' - "$folder" \
        "${CHROOT_ENVIRONMENT[@]}" chroot "$folder" "$@"
}

# boot_chroot FOLDER: its systemd as the first process of namespaces of its own, with this machine's network, until the script
# ends. in_booted COMMAND... runs there.
boot_chroot() {
    # shellcheck disable=SC2016
    unshare --mount --pid --uts --ipc --fork --kill-child bash -ec '
        mount --bind "$1" "$1"
        cd "$1"
        mount -t proc proc proc
        mount --bind -o ro /proc/sys proc/sys
        mount -t sysfs -o ro sysfs sys
        mount -t tmpfs tmpfs run
        mount -t cgroup2 cgroup2 sys/fs/cgroup
        mkdir -p sys/fs/cgroup/quire-package
        echo 0 >sys/fs/cgroup/quire-package/cgroup.procs # its root of cgroups, by the namespace below
        umount sys/fs/cgroup
        exec unshare --cgroup bash -ec "
            mount -t cgroup2 cgroup2 sys/fs/cgroup
            pivot_root . mnt
            umount -l /mnt
            mount --make-rshared /
            exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd"' - "$1" </dev/null >/dev/null 2>&1 &
    BOOTED_JOB=$!
    local tries=300
    until [ "$(in_booted systemctl is-active multi-user.target 2>/dev/null)" = active ]; do
        kill -0 $BOOTED_JOB 2>/dev/null && [ $((tries -= 1)) -gt 0 ] || die "systemd does not start in $1"
        sleep 0.2
    done
}

in_booted() {
    nsenter --target "$(pgrep -P $BOOTED_JOB)" --mount --pid --uts --ipc --cgroup --root --wd \
        "${CHROOT_ENVIRONMENT[@]}" "$@"
}
