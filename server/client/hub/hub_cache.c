#include "server/client/hub/hub_cache.h"

#include "config/base/check.h"
#include "config/base/random_id.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- Layout --- */

#define FOLDER_MODE 0777 /* and the umask, as Python's makedirs */
#define FILE_MODE 0666   /* and the umask */
#define MAX_DEPTH 8      /* of folders in a repository that are looked into */

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

/* --- Reading --- */

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

/* Adds one entry of a folder: a file, or what is in a folder. A link whose content is gone does not
 * count. */
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

/* --- Writing --- */

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

/* --- Hashes --- */

#define SHA256_DIGITS 64
#define SHA1_DIGITS 40
#define MAX_DIGEST_BYTES 32

/* Accepts a zeroed one. */
static void digest_finish(struct hub_digest *digest) {
    if (digest->handle != NULL)
        gnutls_hash_deinit(digest->handle, NULL);
    digest->handle = NULL;
}

static void digest_add(struct hub_digest *digest, const void *data, size_t length) {
    if (digest->handle != NULL)
        CHECK(gnutls_hash(digest->handle, data, length) == 0);
}

/* Begins, or restarts, for content of that many bytes. expected: 64 or 40 digits, or "". */
static int digest_begin(struct hub_digest *digest, const char *expected, int64_t bytes,
                        struct error *err) {
    char prefix[32];
    size_t length = strlen(expected);
    digest_finish(digest);
    digest->expected = expected;
    if (length == 0)
        return 0;
    CHECK(length == SHA256_DIGITS || length == SHA1_DIGITS);
    digest->algorithm = length == SHA256_DIGITS ? GNUTLS_DIG_SHA256 : GNUTLS_DIG_SHA1;
    gnutls_hash_hd_t handle;
    if (gnutls_hash_init(&handle, (gnutls_digest_algorithm_t)digest->algorithm) != 0)
        return error_set(err, ERROR_MEMORY, "GnuTLS cannot hash a download");
    digest->handle = handle;
    if (length == SHA1_DIGITS)
        digest_add(digest, prefix,
                   (size_t)snprintf(prefix, sizeof(prefix), "blob %" PRId64, bytes) + 1);
    return 0;
}

/* Ends it; returns whether the content is the expected one. */
static bool digest_matches(struct hub_digest *digest) {
    unsigned char bytes[MAX_DIGEST_BYTES];
    char digits[2 * MAX_DIGEST_BYTES + 1];
    if (digest->handle == NULL)
        return digest->expected[0] == '\0';
    gnutls_hash_output(digest->handle, bytes);
    for (size_t i = 0; i < strlen(digest->expected) / 2; i++)
        sprintf(digits + 2 * i, "%02x", bytes[i]);
    bool matches = strcmp(digits, digest->expected) == 0;
    digest_finish(digest);
    return matches;
}

/* --- Contents that come --- */

#define LOCK_MODE 0664 /* huggingface_hub, utils/_fixes.py */
#define HASHED_AT_ONCE ((int64_t)8 << 20)
#define MIB ((int64_t)1 << 20)
#define WRITE_BACK_MIB 32

bool hub_blob_is_etag(const char *text) {
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && strchr("-_.", text[i]) == NULL)
            return false;
    return length > 0 && length < HUB_ETAG_BYTES && text[0] != '.';
}

void hub_blob_init(struct hub_blob *blob, const struct hub_cache *cache, const char *etag,
                   const char *hash, int64_t bytes) {
    *blob = (struct hub_blob){.cache = cache, .bytes = bytes, .fd = -1, .lock_fd = -1};
    snprintf(blob->etag, sizeof(blob->etag), "%s", etag);
    snprintf(blob->hash, sizeof(blob->hash), "%s", hash);
}

static void close_file(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void hub_blob_finish(struct hub_blob *blob) {
    close_file(&blob->fd);
    close_file(&blob->lock_fd);
    digest_finish(&blob->digest);
}

/* Paths of these lengths were checked by hub_cache_prepare but for some 140 bytes of an etag. */
#define PATH_BYTES (PATH_MAX + HUB_ETAG_BYTES + 32)

static void blob_path(const struct hub_blob *blob, const char *ending,
                      char out[static PATH_BYTES]) {
    snprintf(out, PATH_BYTES, "%s/blobs/%s%s", blob->cache->folder, blob->etag, ending);
}

bool hub_blob_is_there(const struct hub_blob *blob) {
    char path[PATH_BYTES];
    struct stat status;
    blob_path(blob, "", path);
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == blob->bytes;
}

int64_t hub_blob_partial_bytes(const struct hub_blob *blob) {
    char path[PATH_BYTES];
    struct stat status;
    blob_path(blob, ".incomplete", path);
    return stat(path, &status) == 0 && status.st_size <= blob->bytes ? (int64_t)status.st_size : 0;
}

/* A lock file that was removed meanwhile guards nothing: the next attempt makes another one. */
int hub_blob_lock(struct hub_blob *blob, struct error *err) {
    char path[PATH_BYTES];
    struct stat status;
    snprintf(path, sizeof(path), "%s/%s.lock", blob->cache->locks, blob->etag);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, LOCK_MODE);
    if (fd < 0)
        return hub_cache_refuse(path, "cannot open", errno, err);
    int failure = flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &status) != 0 ? errno : 0;
    if (failure == 0 && status.st_nlink > 0) {
        blob->lock_fd = fd;
        return 1;
    }
    close(fd);
    return failure == 0 || failure == EWOULDBLOCK
               ? 0
               : hub_cache_refuse(path, "cannot lock", failure, err);
}

static int begin_digest(struct hub_blob *blob, struct error *err) {
    blob->have = 0;
    return digest_begin(&blob->digest, blob->hash, blob->bytes, err);
}

int hub_blob_restart(struct hub_blob *blob, struct error *err) {
    char path[PATH_BYTES];
    blob->num_kept = 0;
    blob_path(blob, ".incomplete", path);
    if (ftruncate(blob->fd, 0) != 0)
        return hub_cache_refuse(path, "cannot cut", errno, err);
    return begin_digest(blob, err);
}

int hub_blob_open(struct hub_blob *blob, struct error *err) {
    char path[PATH_BYTES];
    struct stat status;
    blob_path(blob, ".incomplete", path);
    blob->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    if (blob->fd < 0 || fstat(blob->fd, &status) != 0)
        return hub_cache_refuse(path, "cannot open", errno, err);
    if (status.st_size > blob->bytes)
        return hub_blob_restart(blob, err);
    blob->num_kept = (int64_t)status.st_size;
    return begin_digest(blob, err);
}

int hub_blob_hash_kept(struct hub_blob *blob, struct error *err) {
    char chunk[1 << 16], path[PATH_BYTES];
    int64_t end = blob->have + HASHED_AT_ONCE;
    while (blob->have < blob->num_kept && blob->have < end) {
        int64_t left = blob->num_kept - blob->have;
        size_t wanted = left < (int64_t)sizeof(chunk) ? (size_t)left : sizeof(chunk);
        ssize_t count = pread(blob->fd, chunk, wanted, blob->have);
        if (count <= 0) {
            blob_path(blob, ".incomplete", path);
            return hub_cache_refuse(path, "cannot read", count < 0 ? errno : EIO, err);
        }
        digest_add(&blob->digest, chunk, (size_t)count);
        blob->have += count;
    }
    return blob->have == blob->num_kept;
}

/* Has the system write back while more comes in, so that little is left for fdatasync(2), during
 * which no other file would get on. */
static void begin_write_back(struct hub_blob *blob, size_t length) {
    int64_t begin = (blob->have - (int64_t)length) / (WRITE_BACK_MIB * MIB);
    int64_t end = blob->have / (WRITE_BACK_MIB * MIB);
    if (end > begin)
        sync_file_range(blob->fd, begin * WRITE_BACK_MIB * MIB,
                        (end - begin) * WRITE_BACK_MIB * MIB, SYNC_FILE_RANGE_WRITE);
}

int hub_blob_append(struct hub_blob *blob, const void *data, size_t length, struct error *err) {
    char path[PATH_BYTES];
    if ((int64_t)length > blob->bytes - blob->have)
        return 1;
    for (size_t done = 0; done < length;) {
        ssize_t count =
            pwrite(blob->fd, (const char *)data + done, length - done, blob->have + (int64_t)done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            blob_path(blob, ".incomplete", path);
            return hub_cache_refuse(path, "cannot write", count < 0 ? errno : ENOSPC, err);
        }
        done += (size_t)count;
    }
    digest_add(&blob->digest, data, length);
    blob->have += (int64_t)length;
    begin_write_back(blob, length);
    return 0;
}

enum hub_blob_state hub_blob_complete(struct hub_blob *blob, struct error *err) {
    char incomplete[PATH_BYTES], path[PATH_BYTES];
    blob_path(blob, ".incomplete", incomplete);
    blob_path(blob, "", path);
    if (!digest_matches(&blob->digest)) {
        unlink(incomplete);
        close_file(&blob->fd);
        return HUB_BLOB_IS_BAD;
    }
    if (fdatasync(blob->fd) != 0 || rename(incomplete, path) != 0) {
        hub_cache_refuse(path, "cannot complete", errno, err);
        return HUB_BLOB_FAILED;
    }
    close_file(&blob->fd);
    return HUB_BLOB_IS_DONE;
}
