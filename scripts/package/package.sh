# Sourced by the scripts beside it: the tree that is packaged, its version and its time.
. "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

install_packages python3 # which says below what version this is
RELEASE=$(sed -n "s/^ *version: '\(.*\)',$/\1/p" meson.build | head -n 1)
DESCRIPTION=$(scripts/tree/source_version.py . "$RELEASE")

# in_git: whether the tree is a checkout, and not an unpacked archive.
in_git() { git rev-parse --git-dir >/dev/null 2>&1; }

# package_version: the release, or behind its tag the release with the day and the commit: 0.1.0+git20260131.1a2b3c4d5e6f.
package_version() {
    if [ "$DESCRIPTION" = "v$RELEASE" ] || [ "$DESCRIPTION" = "$RELEASE" ]; then
        echo "$RELEASE"
    else
        local commit=${DESCRIPTION##*-g}
        echo "$RELEASE+git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d).${commit//-/.}"
    fi
}

# The time that stands in everything built: of the commit, or of the newest release.
source_time() {
    if in_git; then
        git log -1 --format=%ct
    else
        date -u -d "$(sed -n 's/^## \[[0-9.]*\] - \(.*\)$/\1/p' CHANGELOG.md | head -n 1)" +%s
    fi
}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(source_time)}
VERSION=$(package_version)

# export_source FOLDER: the tracked files as they are now, with what describes their commit, as `git archive` leaves it.
export_source() {
    mkdir -p "$1"
    if in_git; then
        local changed
        changed=$(git stash create)
        git archive "${changed:-HEAD}" | tar -x -C "$1"
    else
        tar -c --exclude='./build*' --exclude='./subprojects/libmicrohttpd-*' . | tar -x -C "$1"
    fi
    echo "$DESCRIPTION" >"$1/scripts/tree/archived_commit"
}

# work_folder: a new folder, removed when the script ends. What the script started in the background ends before.
work_folder() {
    WORK_DIR=$(mktemp -d "${TMPDIR:-/tmp}/quire-package.XXXXXX")
    trap 'exec 2>/dev/null; end_jobs; rm -rf "$WORK_DIR"' EXIT # bash would say which were killed
}

# end_jobs: with all that they have started; a first process of a namespace heeds no other signal.
end_jobs() {
    local job
    for job in $(jobs -rp); do
        end_process "$job"
    done
    wait
}

end_process() {
    local child
    for child in $(pgrep -P "$1"); do
        end_process "$child"
    done
    kill -KILL "$1" 2>/dev/null || true
}
