#include "engine/kv/kv_store_folder.h"

#include "config/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* With a key file. */
struct sealed_secret {
    struct kv_store_seal seal;
    struct block_key_secret secret;
};

static int fail(const struct kv_store_folder *folder, const char *name, struct error *err) {
    return error_set(err, errno == ENOMEM ? ERROR_MEMORY : ERROR_IO, "kv-store: %s%s: %s",
                     folder->path, name, strerror(errno));
}

/* --- Folder and lock --- */

/* Who may put another secret there would decide what is believed. */
static int check_directory(const struct kv_store_folder *folder, struct error *err) {
    struct stat info;
    if (fstat(folder->fd, &info) != 0)
        return fail(folder, "", err);
    if (info.st_uid != geteuid())
        return error_set(err, ERROR_CONFIG,
                         "kv-store: %s belongs to user %u, and this process is of user %u",
                         folder->path, (unsigned)info.st_uid, (unsigned)geteuid());
    if ((info.st_mode & 022) != 0)
        return error_set(err, ERROR_CONFIG,
                         "kv-store: %s has mode %04o, others may change it; it must be 0700",
                         folder->path, (unsigned)info.st_mode & 07777);
    return 0;
}

static int open_directory(struct kv_store_folder *folder,
                          const struct kv_store_folder_config *config, struct error *err) {
    int length = snprintf(folder->path, sizeof(folder->path), "%s", config->directory);
    if (length < 1 || length >= (int)sizeof(folder->path))
        return error_set(err, ERROR_CONFIG, "kv-store: the path has %d bytes, allowed are 1 to %d",
                         length, (int)sizeof(folder->path) - 1);
    if (!config->read_only && mkdir(folder->path, 0700) != 0 && errno != EEXIST)
        return fail(folder, "", err);
    folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0 && config->read_only && errno == ENOENT)
        return error_set(err, ERROR_UNAVAILABLE, "kv-store: %s: missing, and read-only",
                         folder->path);
    return folder->fd >= 0 ? check_directory(folder, err) : fail(folder, "", err);
}

bool kv_store_folder_try_lock(struct kv_store_folder *folder) {
    if (folder->lock_fd >= 0 && !folder->is_owner)
        folder->is_owner = flock(folder->lock_fd, LOCK_EX | LOCK_NB) == 0;
    return folder->is_owner;
}

void kv_store_folder_unlock(struct kv_store_folder *folder) {
    if (folder->is_shared || !folder->is_owner)
        return;
    flock(folder->lock_fd, LOCK_UN);
    folder->is_owner = false;
}

static int open_lock(struct kv_store_folder *folder, const struct kv_store_folder_config *config,
                     struct error *err) {
    if (config->read_only)
        return 0;
    folder->is_owner = config->is_shared;
    if (config->is_shared)
        return 0;
    folder->lock_fd =
        openat(folder->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
    if (folder->lock_fd < 0)
        return fail(folder, "/lock", err);
    if (!kv_store_folder_try_lock(folder) && errno != EWOULDBLOCK)
        return fail(folder, "/lock", err);
    return 0;
}

/* --- Secret --- */

static int write_whole(int fd, const void *data, size_t bytes) {
    ssize_t written = write(fd, data, bytes);
    if (written >= 0 && (size_t)written < bytes)
        errno = ENOSPC;
    return written == (ssize_t)bytes ? fsync(fd) : -1;
}

/* In a shared folder several may do that at once: the first one's stays. */
static int put_secret(const struct kv_store_folder *folder, const char *name) {
    int status = folder->is_shared ? linkat(folder->fd, name, folder->fd, "secret", 0)
                                   : renameat(folder->fd, name, folder->fd, "secret");
    int code = errno;
    unlinkat(folder->fd, name, 0);
    errno = code;
    return status != 0 && !(folder->is_shared && code == EEXIST) ? -1 : 0;
}

static int write_secret_file(const struct kv_store_folder *folder, const void *data, size_t bytes,
                             struct error *err) {
    char name[64];
    uint64_t number = 0;
    if (folder->is_shared && getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return fail(folder, "/secret", err);
    snprintf(name, sizeof(name), "secret.%016" PRIx64, number);
    int fd = openat(folder->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fail(folder, "/secret", err);
    int status = fchmod(fd, 0600);
    if (status == 0)
        status = write_whole(fd, data, bytes);
    if (close(fd) != 0 || status != 0 || put_secret(folder, name) != 0)
        return fail(folder, "/secret", err);
    fsync(folder->fd); /* a lost secret means a lost store, nothing worse */
    return 0;
}

static int make_secret(struct kv_store_folder *folder, const struct kv_store_key *key, bool forgets,
                       struct error *err) {
    if (block_key_secret_create(&folder->secret) != 0)
        return error_set(err, ERROR_IO, "kv-store: the system provides no random numbers");
    folder->is_new = true;
    if (forgets) {
        if (unlinkat(folder->fd, "secret", 0) != 0 && errno != ENOENT)
            return fail(folder, "/secret", err);
        return 0;
    }
    if (key == NULL)
        return write_secret_file(folder, &folder->secret, sizeof(folder->secret), err);
    struct sealed_secret sealed = {.secret = folder->secret};
    struct kv_store_cipher *cipher;
    if (kv_store_cipher_create(key, NULL, &cipher, err) != 0)
        return -1;
    int status =
        kv_store_cipher_seal(cipher, NULL, 0, &sealed.secret, sizeof(sealed.secret), &sealed.seal);
    kv_store_cipher_destroy(cipher);
    if (status != 0)
        return error_set(err, ERROR_IO, "kv-store: %s/secret: cannot be encrypted", folder->path);
    return write_secret_file(folder, &sealed, sizeof(sealed), err);
}

static int decrypt_secret(struct kv_store_folder *folder, const struct kv_store_key *key,
                          struct sealed_secret *sealed, struct error *err) {
    struct kv_store_cipher *cipher;
    if (kv_store_cipher_create(key, NULL, &cipher, err) != 0)
        return -1;
    bool fits = kv_store_cipher_open(cipher, NULL, 0, &sealed->secret, sizeof(sealed->secret),
                                     &sealed->seal);
    kv_store_cipher_destroy(cipher);
    if (!fits)
        return error_set(err, ERROR_CONFIG,
                         "kv-store: %s: the key file does not fit this store; give the right one, "
                         "or remove the folder's files",
                         folder->path);
    folder->secret = sealed->secret;
    return 0;
}

/* Returns the bytes read; -1: none, with an error; 0: there is no such file. */
static ssize_t read_secret_file(const struct kv_store_folder *folder, void *data, size_t bytes,
                                struct error *err) {
    int fd = openat(folder->fd, "secret", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : fail(folder, "/secret", err);
    struct stat info;
    ssize_t have = fstat(fd, &info) == 0 ? read(fd, data, bytes) : -1;
    int code = errno;
    close(fd);
    errno = code;
    if (have < 0)
        return fail(folder, "/secret", err);
    if ((info.st_mode & 077) != 0)
        return error_set(err, ERROR_CONFIG,
                         "kv-store: %s/secret has mode %04o, others may read or change it; it must "
                         "be 0600",
                         folder->path, (unsigned)info.st_mode & 07777);
    return have;
}

static int use_secret(struct kv_store_folder *folder, const struct kv_store_key *key, char *data,
                      size_t bytes, struct error *err) {
    if (key != NULL && bytes == sizeof(struct sealed_secret)) {
        struct sealed_secret sealed;
        memcpy(&sealed, data, sizeof(sealed));
        return decrypt_secret(folder, key, &sealed, err);
    }
    if (key == NULL && bytes == sizeof(folder->secret)) {
        memcpy(&folder->secret, data, sizeof(folder->secret));
        return 0;
    }
    if (bytes == sizeof(folder->secret) || bytes == sizeof(struct sealed_secret))
        return error_set(err, ERROR_CONFIG,
                         key != NULL ? "kv-store: %s is not encrypted; leave the key file out, or "
                                       "remove the folder's files"
                                     : "kv-store: %s is encrypted and needs its key file",
                         folder->path);
    if (bytes > 0 && folder->is_shared)
        return error_set(err, ERROR_CONFIG,
                         "kv-store: %s/secret is damaged; put it back, or remove all files there",
                         folder->path);
    if (!folder->is_owner)
        return error_set(err, ERROR_UNAVAILABLE, "kv-store: %s/secret: %s", folder->path,
                         bytes == 0 ? "missing; its owner may keep it in memory" : "damaged");
    if (bytes > 0)
        log_warning("kv-store: %s/secret is damaged; the store begins anew", folder->path);
    return make_secret(folder, key, false, err);
}

static int open_secret(struct kv_store_folder *folder, const struct kv_store_folder_config *config,
                       const struct kv_store_key *key, struct error *err) {
    char data[sizeof(struct sealed_secret) + 1];
    if (config->forgets && !folder->is_owner)
        return error_set(err, ERROR_UNAVAILABLE,
                         "kv-store: %s: a store that is kept for one start only cannot be %s",
                         folder->path, config->read_only ? "read-only" : "used by two processes");
    if (config->forgets)
        return make_secret(folder, key, true, err);
    int status = 0;
    do { /* another's is read after its own was made, if it came first */
        folder->is_new = false;
        ssize_t bytes = read_secret_file(folder, data, sizeof(data), err);
        status = bytes < 0 ? -1 : use_secret(folder, key, data, (size_t)bytes, err);
    } while (status == 0 && folder->is_new && folder->is_shared);
    explicit_bzero(data, sizeof(data));
    return status;
}

/* --- Life --- */

int kv_store_folder_open(struct kv_store_folder *folder,
                         const struct kv_store_folder_config *config, struct error *err) {
    struct kv_store_key key;
    *folder = (struct kv_store_folder){.fd = -1,
                                       .lock_fd = -1,
                                       .is_shared = config->is_shared,
                                       .is_encrypted = config->key_file != NULL};
    if (config->key_file != NULL && kv_store_key_read(config->key_file, &key, err) != 0)
        return -1;
    int status = open_directory(folder, config, err);
    if (status == 0)
        status = open_lock(folder, config, err);
    if (status == 0)
        status = open_secret(folder, config, config->key_file != NULL ? &key : NULL, err);
    if (status == 0 && config->key_file != NULL)
        status = kv_store_key_derive(&key, &folder->secret, &folder->key, err);
    explicit_bzero(&key, sizeof(key));
    if (status != 0)
        kv_store_folder_close(folder);
    return status;
}

void kv_store_folder_close(struct kv_store_folder *folder) {
    if (folder->lock_fd >= 0)
        close(folder->lock_fd);
    if (folder->fd >= 0)
        close(folder->fd);
    folder->fd = folder->lock_fd = -1;
    explicit_bzero(&folder->secret, sizeof(folder->secret));
    explicit_bzero(&folder->key, sizeof(folder->key));
}
