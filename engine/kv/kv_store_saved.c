#include "engine/kv/kv_store_saved.h"

#include "config/base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER "saved"
#define TEMPORARY ".new-" /* begins a name that no conversation can have */
#define TEMPORARY_S 3600  /* after which its writer is dead */
#define MAX_FILE_BYTES ((size_t)64 << 20)
#define MAX_GROUPS 64

/* The file begins with it; then come the keys and the data, which the seal is of. */
struct header {
    struct kv_store_seal seal;
    uint64_t num_keys, num_groups, num_bytes;
};

/* What the seal is about, next to that. */
struct about {
    unsigned char identity[KV_STORE_IDENTITY_BYTES];
    uint64_t num_keys, num_groups, num_bytes;
    char name[KV_SAVED_MAX_NAME_BYTES + 8];
};

void kv_saved_finish(struct kv_saved *saved) {
    free(saved->keys);
    free(saved->data);
    *saved = (struct kv_saved){0};
}

bool kv_saved_is_name(const char *name) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t length = strlen(name);
    return length >= 1 && length <= KV_SAVED_MAX_NAME_BYTES && strspn(name, allowed) == length &&
           strchr("._-", name[0]) == NULL;
}

static struct about about_of(const struct kv_store_file *file, const char *name,
                             const struct header *header) {
    struct about about = {.num_keys = header->num_keys,
                          .num_groups = header->num_groups,
                          .num_bytes = header->num_bytes};
    memcpy(about.identity, file->config.identity, sizeof(about.identity));
    snprintf(about.name, sizeof(about.name), "%s", name);
    return about;
}

static int fail(const struct kv_store_file *file, const char *name, struct error *err) {
    if (errno == ENOENT)
        return error_set(err, ERROR_UNAVAILABLE, "kv-store: nothing was saved as \"%s\"", name);
    return error_set(err, errno == ENOMEM ? ERROR_MEMORY : ERROR_IO,
                     "kv-store: %s/" FOLDER "/%s: %s", file->config.folder->path, name,
                     strerror(errno));
}

static int open_folder(const struct kv_store_file *file) {
    return openat(file->config.folder->fd, FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

static int make_cipher(const struct kv_store_file *file, struct kv_store_cipher **out,
                       struct error *err) {
    const struct kv_store_folder *folder = file->config.folder;
    return kv_store_cipher_create(folder->is_encrypted ? &folder->key : NULL, &folder->secret, out,
                                  err);
}

/* --- Writing --- */

/* Returns the bytes of a file; NULL: memory is short, or it cannot be sealed. */
static unsigned char *seal(const struct kv_store_file *file, const char *name,
                           const struct kv_saved *saved, size_t *out_bytes, struct error *err) {
    size_t key_bytes = (size_t)saved->num_keys * sizeof(*saved->keys);
    size_t num_bytes = sizeof(struct header) + key_bytes + saved->num_bytes;
    unsigned char *bytes = malloc(num_bytes);
    struct kv_store_cipher *cipher;
    if (bytes == NULL || make_cipher(file, &cipher, err) != 0) {
        free(bytes);
        return NULL;
    }
    struct header *header = (struct header *)bytes;
    *header = (struct header){.num_keys = (uint64_t)saved->num_keys,
                              .num_groups = (uint64_t)saved->num_groups,
                              .num_bytes = saved->num_bytes};
    unsigned char *content = bytes + sizeof(*header);
    if (key_bytes > 0)
        memcpy(content, saved->keys, key_bytes);
    if (saved->num_bytes > 0)
        memcpy(content + key_bytes, saved->data, saved->num_bytes);
    const struct about about = about_of(file, name, header);
    int status = kv_store_cipher_seal(cipher, &about, sizeof(about), content,
                                      key_bytes + saved->num_bytes, &header->seal);
    kv_store_cipher_destroy(cipher);
    if (status == 0) {
        *out_bytes = num_bytes;
        return bytes;
    }
    free(bytes);
    error_set(err, ERROR_IO, "kv-store: \"%s\" cannot be encrypted", name);
    return NULL;
}

/* Others may save at the same time, on other machines too. */
static int write_bytes(int folder_fd, const char *name, const unsigned char *bytes,
                       size_t num_bytes) {
    char temporary[40];
    uint64_t number;
    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return -1;
    snprintf(temporary, sizeof(temporary), TEMPORARY "%016llx", (unsigned long long)number);
    int fd = openat(folder_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    int status = kv_store_file_transfer(fd, true, (void *)bytes, num_bytes, 0);
    if (status == 0)
        status = fsync(fd);
    status = close(fd) == 0 && status == 0 ? renameat(folder_fd, temporary, folder_fd, name) : -1;
    if (status == 0)
        return fsync(folder_fd);
    int code = errno;
    unlinkat(folder_fd, temporary, 0);
    errno = code;
    return -1;
}

int kv_saved_write(const struct kv_store_file *file, const char *name, const struct kv_saved *saved,
                   struct error *err) {
    size_t num_bytes;
    unsigned char *bytes = seal(file, name, saved, &num_bytes, err);
    if (bytes == NULL)
        return -1;
    if (mkdirat(file->config.folder->fd, FOLDER, 0700) != 0 && errno != EEXIST) {
        free(bytes);
        return fail(file, name, err);
    }
    int folder_fd = open_folder(file);
    int status = folder_fd < 0 ? -1 : write_bytes(folder_fd, name, bytes, num_bytes);
    if (status != 0)
        fail(file, name, err);
    if (folder_fd >= 0)
        close(folder_fd);
    free(bytes);
    return status;
}

int kv_saved_remove(const struct kv_store_file *file, const char *name, struct error *err) {
    int folder_fd = open_folder(file);
    int status = folder_fd < 0 ? -1 : unlinkat(folder_fd, name, 0);
    if (status != 0)
        fail(file, name, err);
    if (folder_fd >= 0)
        close(folder_fd);
    return status;
}

/* --- Reading --- */

/* Returns -1 for a header that no file of this size has. */
static int check_header(const struct header *header, size_t file_bytes) {
    size_t rest = file_bytes - sizeof(*header);
    bool fits = header->num_groups >= 1 && header->num_groups <= MAX_GROUPS &&
                header->num_keys <= rest / sizeof(struct block_key) &&
                header->num_keys * sizeof(struct block_key) + header->num_bytes == rest;
    return fits ? 0 : -1;
}

/* Reads a whole file. Sets errno when it cannot; EBADMSG: it has no possible size. */
static unsigned char *read_bytes(int folder_fd, const char *name, size_t *out_bytes) {
    struct stat info;
    unsigned char *bytes = NULL;
    int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &info) == 0) {
        bool fits = S_ISREG(info.st_mode) && info.st_size >= (off_t)sizeof(struct header) &&
                    (uint64_t)info.st_size <= MAX_FILE_BYTES;
        if (!fits)
            errno = EBADMSG;
        bytes = fits ? malloc((size_t)info.st_size) : NULL;
    }
    if (bytes != NULL && kv_store_file_transfer(fd, false, bytes, (size_t)info.st_size, 0) != 0) {
        free(bytes);
        bytes = NULL;
    }
    int code = errno;
    close(fd);
    errno = code;
    *out_bytes = bytes != NULL ? (size_t)info.st_size : 0;
    return bytes;
}

/* Verifies a file's bytes, and decrypts them in place. */
static int open_seal(const struct kv_store_file *file, const char *name, unsigned char *bytes,
                     size_t num_bytes, struct error *err) {
    struct header *header = (struct header *)bytes;
    struct kv_store_cipher *cipher;
    bool fits = check_header(header, num_bytes) == 0;
    if (fits && make_cipher(file, &cipher, err) != 0)
        return -1;
    if (fits) {
        const struct about about = about_of(file, name, header);
        fits = kv_store_cipher_open(cipher, &about, sizeof(about), bytes + sizeof(*header),
                                    num_bytes - sizeof(*header), &header->seal);
        kv_store_cipher_destroy(cipher);
    }
    if (fits)
        return 0;
    return error_set(err, ERROR_IO,
                     "kv-store: what was saved as \"%s\" is damaged, or of another model, other "
                     "options or another secret",
                     name);
}

static int copy_saved(const unsigned char *bytes, struct kv_saved *out, struct error *err) {
    const struct header *header = (const struct header *)bytes;
    size_t key_bytes = header->num_keys * sizeof(*out->keys);
    *out = (struct kv_saved){.keys = malloc(key_bytes + 1),
                             .num_keys = (int32_t)header->num_keys,
                             .num_groups = (int32_t)header->num_groups,
                             .data = malloc(header->num_bytes + 1),
                             .num_bytes = header->num_bytes};
    if (out->keys == NULL || out->data == NULL) {
        kv_saved_finish(out);
        return error_set(err, ERROR_MEMORY, "kv-store: no memory for a saved conversation");
    }
    memcpy(out->keys, bytes + sizeof(*header), key_bytes);
    memcpy(out->data, bytes + sizeof(*header) + key_bytes, out->num_bytes);
    return 0;
}

static int read_from(const struct kv_store_file *file, int folder_fd, const char *name,
                     struct kv_saved *out, struct error *err) {
    size_t num_bytes;
    unsigned char *bytes = read_bytes(folder_fd, name, &num_bytes);
    if (bytes == NULL)
        return fail(file, name, err);
    int status = open_seal(file, name, bytes, num_bytes, err);
    if (status == 0)
        status = copy_saved(bytes, out, err);
    free(bytes);
    return status;
}

int kv_saved_read(const struct kv_store_file *file, const char *name, struct kv_saved *out,
                  struct error *err) {
    int folder_fd = open_folder(file);
    if (folder_fd < 0)
        return fail(file, name, err);
    int status = read_from(file, folder_fd, name, out, err);
    close(folder_fd);
    return status;
}

/* Of a process that was killed. */
static void remove_old(int folder_fd, const char *name) {
    struct stat info;
    if (fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        time(NULL) - info.st_mtime > TEMPORARY_S)
        unlinkat(folder_fd, name, 0);
}

void kv_saved_keep(struct kv_store_index *index, const struct kv_saved *saved) {
    for (int32_t i = 0; i < saved->num_keys; i++)
        for (int32_t group = 0; group < saved->num_groups; group++)
            kv_store_index_keep(index, &saved->keys[i], group);
}

void kv_saved_unkeep(struct kv_store_index *index, const struct kv_saved *saved) {
    for (int32_t i = 0; i < saved->num_keys; i++)
        for (int32_t group = 0; group < saved->num_groups; group++)
            kv_store_index_unkeep(index, &saved->keys[i], group);
}

void kv_saved_keep_all(const struct kv_store_file *file, struct kv_store_index *index) {
    int folder_fd = open_folder(file);
    DIR *list = folder_fd >= 0 ? fdopendir(folder_fd) : NULL;
    const struct dirent *entry;
    int32_t num_files = 0;
    if (list == NULL) {
        if (folder_fd >= 0)
            close(folder_fd);
        return;
    }
    while ((entry = readdir(list)) != NULL && num_files < KV_SAVED_MAX_FILES) {
        struct kv_saved saved;
        struct error err;
        if (strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) == 0)
            remove_old(folder_fd, entry->d_name);
        if (!kv_saved_is_name(entry->d_name))
            continue;
        num_files++;
        if (read_from(file, folder_fd, entry->d_name, &saved, &err) != 0) {
            log_warning("%s", err.message);
            continue;
        }
        kv_saved_keep(index, &saved);
        kv_saved_finish(&saved);
    }
    closedir(list);
}
