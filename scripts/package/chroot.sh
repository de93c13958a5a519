# Sourced by the scripts beside it: Debian systems in a folder, made once with this machine's apt settings and kept below
# ~/.cache/quire/chroots; commands in them have processes and mounts of their own. Needs root.
CHROOTS_DIR=$CACHE_DIR/chroots
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
        env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        chroot "$folder" "$@"
}
