#include "server/client/hub/hub_blob.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MODE 0666 /* and the umask */
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
    hub_digest_finish(&blob->digest);
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
    return hub_digest_begin(&blob->digest, blob->hash, blob->bytes, err);
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
        hub_digest_add(&blob->digest, chunk, (size_t)count);
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
    hub_digest_add(&blob->digest, data, length);
    blob->have += (int64_t)length;
    begin_write_back(blob, length);
    return 0;
}

enum hub_blob_state hub_blob_complete(struct hub_blob *blob, struct error *err) {
    char incomplete[PATH_BYTES], path[PATH_BYTES];
    blob_path(blob, ".incomplete", incomplete);
    blob_path(blob, "", path);
    if (!hub_digest_matches(&blob->digest)) {
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
