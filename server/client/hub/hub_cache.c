#include "server/client/hub/hub_cache.h"

#include "config/base/random_id.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_MODE 0777 /* and the umask, as Python's makedirs */
#define FILE_MODE 0666
#define MAX_DEPTH 8 /* of folders in a repository that are looked into */

__attribute__((format(printf, 3, 4))) static int
write_path(char out[static PATH_MAX], struct error *err, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(out, PATH_MAX, format, arguments);
    va_end(arguments);
    return length < PATH_MAX
               ? 0
               : error_set(err, ERROR_CONFIG, "the cache's path is too long: shorten HF_HUB_CACHE");
}

int hub_cache_refuse(const char *path, const char *what, int failure, struct error *err) {
    const char *advice = failure == ENOSPC || failure == EDQUOT ? "free some space"
                                                                : "make it writable for this user";
    return error_set(err, ERROR_IO, "%.250s: %s: %s; %s, or name another cache in HF_HUB_CACHE",
                     path, what, strerror(failure), advice);
}

int hub_cache_init(struct hub_cache *out, const char *root, const char *repository,
                   struct error *err) {
    const char *slash = strchr(repository, '/');
    int half = (int)(slash - repository);
    if (write_path(out->folder, err, "%s/models--%.*s--%s", root, half, repository, slash + 1) != 0)
        return -1;
    return write_path(out->locks, err, "%s/.locks/models--%.*s--%s", root, half, repository,
                      slash + 1);
}

int hub_cache_snapshot_path(const struct hub_cache *cache, const char *commit, const char *name,
                            char out[static PATH_MAX], struct error *err) {
    return write_path(out, err, "%s/snapshots/%s%s%s", cache->folder, commit,
                      name != NULL ? "/" : "", name != NULL ? name : "");
}

/* --- Reading ---------------------------------------------------------------------------------- */

bool hub_cache_commit(const struct hub_cache *cache, const char *revision,
                      char out[static HUB_COMMIT_BYTES]) {
    char path[PATH_MAX], text[HUB_COMMIT_BYTES + 8] = "";
    if (hub_reference_is_commit(revision)) {
        memcpy(out, revision, HUB_COMMIT_BYTES);
        return true;
    }
    if (write_path(path, NULL, "%s/refs/%s", cache->folder, revision) != 0)
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t count = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[strcspn(text, " \r\n")] = '\0';
    if (count <= 0 || !hub_reference_is_commit(text))
        return false;
    memcpy(out, text, HUB_COMMIT_BYTES);
    return true;
}

bool hub_cache_is_absent(const struct hub_cache *cache, const char *commit, const char *name) {
    char path[PATH_MAX];
    return write_path(path, NULL, "%s/.no_exist/%s/%s", cache->folder, commit, name) == 0 &&
           access(path, F_OK) == 0;
}

static int list_folder(const char *folder, const char *prefix, int depth, struct hub_listing *out,
                       struct error *err);

/* Adds one entry of a folder: a file, or what is in a folder. A link whose content is gone is
 * none. */
static int list_entry(const char *folder, const char *prefix, const char *entry, int depth,
                      struct hub_listing *out, struct error *err) {
    char path[PATH_MAX], name[HUB_FILE_NAME_BYTES];
    struct stat status;
    if (snprintf(name, sizeof(name), "%s%s", prefix, entry) >= (int)sizeof(name) ||
        write_path(path, NULL, "%s/%s", folder, entry) != 0 || stat(path, &status) != 0)
        return 0;
    if (S_ISREG(status.st_mode))
        return hub_listing_add(out, name, (int64_t)status.st_size, "", err);
    if (!S_ISDIR(status.st_mode) || depth == MAX_DEPTH || strlen(name) + 1 >= sizeof(name))
        return 0;
    strcat(name, "/");
    return list_folder(path, name, depth + 1, out, err);
}

static int is_entry(const struct dirent *entry) {
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int list_folder(const char *folder, const char *prefix, int depth, struct hub_listing *out,
                       struct error *err) {
    struct dirent **entries;
    int count = scandir(folder, &entries, is_entry, alphasort), status = 0;
    if (count < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : error_set(err, ERROR_IO, "%.400s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (status == 0)
            status = list_entry(folder, prefix, entries[i]->d_name, depth, out, err);
        free(entries[i]);
    }
    free(entries);
    return status;
}

int hub_cache_list(const struct hub_cache *cache, const char *commit, struct hub_listing *out,
                   struct error *err) {
    char path[PATH_MAX];
    *out = (struct hub_listing){0};
    if (hub_cache_snapshot_path(cache, commit, NULL, path, err) != 0)
        return -1;
    memcpy(out->commit, commit, HUB_COMMIT_BYTES);
    if (list_folder(path, "", 0, out, err) == 0)
        return 0;
    hub_listing_finish(out);
    return -1;
}

/* --- Writing ---------------------------------------------------------------------------------- */

/* Makes the folders of a path, and with is_file those above its last part alone. */
static int make_folders(const char *path, bool is_file, struct error *err) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", path);
    for (char *at = folder + 1;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char end = *at;
        if (end == '\0' && is_file)
            return 0;
        *at = '\0';
        if (mkdir(folder, FOLDER_MODE) != 0 && errno != EEXIST)
            return hub_cache_refuse(folder, "cannot make this folder", errno, err);
        if (end == '\0')
            return 0;
        *at = end;
    }
}

int hub_cache_prepare(const struct hub_cache *cache, struct error *err) {
    char blobs[PATH_MAX];
    if (write_path(blobs, err, "%s/blobs", cache->folder) != 0 ||
        make_folders(blobs, false, err) != 0)
        return -1;
    return make_folders(cache->locks, false, err);
}

/* A link takes the place of another in one step, so that a reader never finds none. */
static int replace_link(const char *target, const char *path) {
    char temporary[PATH_MAX + 32], suffix[16];
    if (random_id("", 8, suffix, sizeof(suffix)) != 0)
        return -1;
    snprintf(temporary, sizeof(temporary), "%s.%s.tmp", path, suffix);
    if (symlink(target, temporary) != 0)
        return -1;
    if (rename(temporary, path) == 0)
        return 0;
    int failure = errno;
    unlink(temporary);
    errno = failure;
    return -1;
}

int hub_cache_link(const struct hub_cache *cache, const char *commit, const char *name,
                   const char *etag, struct error *err) {
    char path[PATH_MAX], target[PATH_MAX] = "../..";
    if (hub_cache_snapshot_path(cache, commit, name, path, err) != 0 ||
        make_folders(path, true, err) != 0)
        return -1;
    for (const char *c = name; *c != '\0'; c++)
        if (*c == '/')
            strcat(target, "/.."); /* at most 3 of the name's 511 bytes for each of its slashes */
    strcat(strcat(target, "/blobs/"), etag);
    return replace_link(target, path) == 0 ? 0 : hub_cache_refuse(path, "cannot link", errno, err);
}

static bool write_text(const char *path, const char *text) {
    size_t length = strlen(text);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
    bool is_written = fd >= 0 && write(fd, text, length) == (ssize_t)length;
    if (fd >= 0)
        close(fd);
    return is_written;
}

void hub_cache_set_commit(const struct hub_cache *cache, const char *revision, const char *commit) {
    char path[PATH_MAX], temporary[PATH_MAX + 32], suffix[16], known[HUB_COMMIT_BYTES];
    if (hub_reference_is_commit(revision) ||
        (hub_cache_commit(cache, revision, known) && strcmp(known, commit) == 0) ||
        write_path(path, NULL, "%s/refs/%s", cache->folder, revision) != 0 ||
        make_folders(path, true, NULL) != 0 || random_id("", 8, suffix, sizeof(suffix)) != 0)
        return;
    snprintf(temporary, sizeof(temporary), "%s.%s.tmp", path, suffix);
    if (!write_text(temporary, commit) || rename(temporary, path) != 0)
        unlink(temporary);
}

void hub_cache_set_absent(const struct hub_cache *cache, const char *commit, const char *name) {
    char path[PATH_MAX];
    if (write_path(path, NULL, "%s/.no_exist/%s/%s", cache->folder, commit, name) == 0 &&
        make_folders(path, true, NULL) == 0)
        write_text(path, "");
}
