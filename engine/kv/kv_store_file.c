#include "engine/kv/kv_store_file.h"

#include "config/base/check.h"
#include "config/base/log.h"
#include "config/base/numbers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LEFT_SHARE 20   /* of the free room of a disk is left where the store wants all */
#define CHANGES_AT 2048 /* in the header's page */
#define FORMAT_VERSION 1

static const char magic[8] = "QUIREKVS";

struct header {
    char magic[8];
    uint32_t version;
    int32_t block_size;
    unsigned char identity[KV_STORE_IDENTITY_BYTES];
    uint64_t block_bytes, slot_bytes, record_bytes;
    int32_t wanted_slots; /* as many as the configured bytes have room for */
    int32_t num_slots;    /* as many as the disk had room for */
    uint64_t generation;
};

struct sealed_header {
    struct kv_store_seal seal; /* with an empty text, about the header */
    struct header header;
};

/* --- Sizes --- */

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

off_t kv_store_file_record_at(const struct kv_store_file *file, int32_t slot) {
    return KV_STORE_PAGE_BYTES + (off_t)slot * (off_t)file->record_bytes;
}

off_t kv_store_file_slot_at(const struct kv_store_file *file, int32_t slot) {
    return (off_t)slot * (off_t)file->slot_bytes;
}

static off_t records_bytes(const struct kv_store_file *file, int32_t num_slots) {
    return kv_store_file_record_at(file, num_slots) + (off_t)num_slots * (off_t)sizeof(uint64_t);
}

static int32_t slots_in(const struct kv_store_file *file, int64_t bytes) {
    size_t of_slot = file->slot_bytes + file->record_bytes + sizeof(uint64_t);
    int64_t count = (bytes - KV_STORE_PAGE_BYTES) / (int64_t)of_slot;
    return (int32_t)min_int64(max_int64(count, 0), INT32_MAX / 2);
}

/* --- Reading and writing --- */

int kv_store_file_open_direct(const struct kv_store_file *file, const char *name, int flags) {
    int folder_fd = file->config.folder->fd;
    flags |= O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = openat(folder_fd, name, flags | O_DIRECT, 0600);
    return fd >= 0 || errno != EINVAL ? fd : openat(folder_fd, name, flags, 0600);
}

bool kv_store_file_is_direct(int fd) {
    return (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
}

int kv_store_file_transfer(int fd, bool writes, void *data, size_t bytes, off_t at) {
    for (size_t done = 0; done < bytes;) {
        char *rest = (char *)data + done;
        ssize_t more = writes ? pwrite(fd, rest, bytes - done, at + (off_t)done)
                              : pread(fd, rest, bytes - done, at + (off_t)done);
        if (more < 0 && errno == EINTR)
            continue;
        /* A file system may take the flag and then refuse to read or write. */
        if (more < 0 && errno == EINVAL && kv_store_file_is_direct(fd) &&
            fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT) == 0)
            continue;
        if (more == 0)
            errno = EIO;
        if (more <= 0)
            return -1;
        done += (size_t)more;
    }
    return 0;
}

void kv_store_file_count_change(const struct kv_store_file *file) {
    uint64_t changes = kv_store_file_num_changes(file) + 1;
    (void)!pwrite(file->records_fd, &changes, sizeof(changes), CHANGES_AT);
}

uint64_t kv_store_file_num_changes(const struct kv_store_file *file) {
    uint64_t changes;
    return kv_store_file_transfer(file->records_fd, false, &changes, sizeof(changes), CHANGES_AT) ==
                   0
               ? changes
               : 0;
}

/* --- Room --- */

int kv_store_room_init(struct kv_store_room *room, const struct kv_store_file *file,
                       struct error *err) {
    const struct kv_store_folder *folder = file->config.folder;
    struct kv_store_room made = {
        .record = aligned_alloc(KV_STORE_PAGE_BYTES, file->head_bytes + file->slot_bytes)};
    int status = -1;
    if (made.record == NULL)
        error_set(err, ERROR_MEMORY, "kv-store: no memory for a block of %zu bytes",
                  file->slot_bytes);
    else
        status = kv_store_cipher_create(folder->is_encrypted ? &folder->key : NULL, &folder->secret,
                                        &made.cipher, err);
    if (status != 0) {
        kv_store_room_finish(&made);
        return -1;
    }
    made.block = memset(made.record + file->head_bytes, 0, file->slot_bytes);
    *room = made;
    return 0;
}

void kv_store_room_finish(struct kv_store_room *room) {
    kv_store_cipher_destroy(room->cipher);
    free(room->record);
    *room = (struct kv_store_room){0};
}

/* --- Header --- */

int kv_store_file_write_header(const struct kv_store_file *file, struct kv_store_room *room) {
    struct sealed_header sealed = {
        .header = {.version = FORMAT_VERSION,
                   .block_size = file->config.block_size,
                   .block_bytes = file->config.block_bytes,
                   .slot_bytes = file->slot_bytes,
                   .record_bytes = file->record_bytes,
                   .wanted_slots = slots_in(file, file->config.max_bytes),
                   .num_slots = file->num_slots,
                   .generation = file->generation}};
    memcpy(sealed.header.magic, magic, sizeof(magic));
    memcpy(sealed.header.identity, file->config.identity, sizeof(sealed.header.identity));
    if (kv_store_cipher_seal(room->cipher, &sealed.header, sizeof(sealed.header), NULL, 0,
                             &sealed.seal) != 0) {
        errno = EIO;
        return -1;
    }
    return kv_store_file_transfer(file->records_fd, true, &sealed, sizeof(sealed), 0);
}

/* Returns why the header's file is not for this store; NULL: it is. */
static const char *compare_header(const struct kv_store_file *file, const struct header *header) {
    if (header->version != FORMAT_VERSION)
        return "was written by another version";
    if (memcmp(header->identity, file->config.identity, sizeof(header->identity)) != 0)
        return "holds blocks of another model or configuration";
    if (header->block_size != file->config.block_size ||
        header->block_bytes != file->config.block_bytes || header->slot_bytes != file->slot_bytes ||
        header->record_bytes != file->record_bytes)
        return "holds blocks of another size";
    if (header->num_slots < 1 || header->num_slots > header->wanted_slots)
        return "is damaged";
    return NULL;
}

/* Uses the header; returns why it cannot be used, or NULL. It may be of another size than is
 * configured where that was made by another process, which this one reads or takes over. */
static const char *read_header(struct kv_store_file *file, struct kv_store_room *room,
                               bool of_any_size) {
    struct sealed_header sealed;
    if (kv_store_file_transfer(file->records_fd, false, &sealed, sizeof(sealed), 0) != 0)
        return "is empty";
    if (memcmp(sealed.header.magic, magic, sizeof(magic)) != 0)
        return "is not a store of blocks";
    if (!kv_store_cipher_open(room->cipher, &sealed.header, sizeof(sealed.header), NULL, 0,
                              &sealed.seal))
        return "is damaged, or of another secret";
    const char *reason = compare_header(file, &sealed.header);
    if (reason == NULL && !of_any_size &&
        sealed.header.wanted_slots != slots_in(file, file->config.max_bytes))
        reason = "has another size";
    if (reason == NULL) {
        file->num_slots = sealed.header.num_slots;
        file->generation = sealed.header.generation;
    }
    return reason;
}

bool kv_store_file_refresh(struct kv_store_file *file, struct kv_store_room *room) {
    file->fits = read_header(file, room, true) == NULL;
    return file->fits;
}

/* --- Making the files --- */

/* Gives a file its size, with blocks on the disk where the file system can. */
static int reserve(int fd, off_t bytes) {
    if (ftruncate(fd, 0) != 0)
        return -1;
    if (fallocate(fd, 0, 0, bytes) == 0)
        return 0;
    if (errno == EOPNOTSUPP || errno == ENOSYS)
        return ftruncate(fd, bytes);
    return -1;
}

/* Returns the slots that may fit in what the disk has free, of which a part is left to others. */
static int32_t slots_that_may_fit(const struct kv_store_file *file) {
    struct statvfs disk;
    int32_t slots = slots_in(file, file->config.max_bytes);
    if (fstatvfs(file->slots_fd, &disk) != 0)
        return slots;
    int64_t free = (int64_t)(disk.f_bavail * (uint64_t)disk.f_frsize);
    return min_int32(slots, slots_in(file, free - free / LEFT_SHARE));
}

static int reserve_both(struct kv_store_file *file, struct error *err) {
    const char *path = file->config.folder->path;
    int32_t wanted = slots_in(file, file->config.max_bytes);
    int code = ENOSPC;
    /* What the files had is free for them. */
    if (ftruncate(file->records_fd, 0) != 0 || ftruncate(file->slots_fd, 0) != 0)
        return error_set(err, ERROR_IO, "kv-store: %s: %s", path, strerror(errno));
    int32_t slots = slots_that_may_fit(file);
    for (; slots >= 1; slots -= max_int32(slots / 8, 1)) {
        if (reserve(file->slots_fd, kv_store_file_slot_at(file, slots)) == 0 &&
            reserve(file->records_fd, records_bytes(file, slots)) == 0)
            break;
        code = errno;
        if (code != ENOSPC && code != EFBIG && code != EDQUOT)
            slots = 0;
    }
    if (slots < 1) {
        (void)!ftruncate(file->slots_fd, 0);
        (void)!ftruncate(file->records_fd, 0);
        return error_set(err, ERROR_IO, "kv-store: %s: no room for a block of %zu bytes: %s", path,
                         file->slot_bytes, strerror(code));
    }
    if (slots < wanted)
        log_warning("kv-store: %s has room for %d of %d blocks", path, slots, wanted);
    file->num_slots = slots;
    return 0;
}

static int make_files(struct kv_store_file *file, struct kv_store_room *room, struct error *err) {
    if (getrandom(&file->generation, sizeof(file->generation), 0) !=
        (ssize_t)sizeof(file->generation))
        return error_set(err, ERROR_IO, "kv-store: the system provides no random numbers");
    if (reserve_both(file, err) != 0)
        return -1;
    if (kv_store_file_write_header(file, room) != 0)
        return error_set(err, ERROR_IO, "kv-store: %s/records: %s", file->config.folder->path,
                         strerror(errno));
    /* Others notice a new store by this number, so it must not be one that they have seen. */
    (void)!pwrite(file->records_fd, &file->generation, sizeof(file->generation), CHANGES_AT);
    return 0;
}

/* --- Opening --- */

static int open_one(const struct kv_store_file *file, const char *name, int *out,
                    struct error *err) {
    const struct kv_store_folder *folder = file->config.folder;
    int flags = file->config.read_only ? O_RDONLY : O_RDWR;
    bool is_direct = out == &file->slots_fd;
    flags |= O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | (folder->is_owner ? O_CREAT : 0);
    *out = is_direct ? kv_store_file_open_direct(file, name, flags)
                     : openat(folder->fd, name, flags, 0600);
    struct stat info;
    if (*out < 0)
        return error_set(err, errno == ENOENT && !folder->is_owner ? ERROR_UNAVAILABLE : ERROR_IO,
                         "kv-store: %s/%s: %s", folder->path, name, strerror(errno));
    if (fstat(*out, &info) == 0 && S_ISREG(info.st_mode))
        return 0;
    return error_set(err, ERROR_IO, "kv-store: %s/%s is not a file", folder->path, name);
}

static int use_or_make(struct kv_store_file *file, struct kv_store_room *room, struct error *err) {
    const struct kv_store_folder *folder = file->config.folder;
    const char *reason =
        folder->is_new ? "has a new secret" : read_header(file, room, !folder->is_owner);
    struct stat info;
    off_t bytes = reason == NULL ? kv_store_file_slot_at(file, file->num_slots) : 0;
    if (folder->is_owner && fstat(file->slots_fd, &info) == 0 && info.st_size < bytes)
        (void)!fallocate(file->slots_fd, 0, 0, bytes); /* it was cut */
    file->fits = true;
    if (reason == NULL)
        return 0;
    if (!folder->is_owner)
        return error_set(err, ERROR_UNAVAILABLE, "kv-store: %s %s; its owner is another process",
                         folder->path, reason);
    if (fstat(file->records_fd, &info) == 0 && info.st_size > 0)
        log_warning("kv-store: %s %s; it begins anew", folder->path, reason);
    return make_files(file, room, err);
}

static int open_slots(struct kv_store_file *file, struct error *err) {
    struct kv_store_room room = {0};
    int status = open_one(file, "records", &file->records_fd, err);
    if (status == 0)
        status = open_one(file, "slots", &file->slots_fd, err);
    if (status == 0)
        status = kv_store_room_init(&room, file, err);
    if (status == 0)
        status = use_or_make(file, &room, err);
    kv_store_room_finish(&room);
    if (status != 0)
        kv_store_file_close(file);
    return status;
}

int kv_store_file_open(struct kv_store_file *file, const struct kv_store_file_config *config,
                       struct error *err) {
    const struct kv_store_folder *folder = config->folder;
    size_t record_bytes =
        round_up(sizeof(struct kv_store_record) + (size_t)config->block_size * sizeof(int32_t), 16);
    CHECK(config->block_bytes >= 1 && config->block_bytes < SIZE_MAX / 2);
    CHECK(config->block_size >= 1 && config->block_size <= BLOCK_KEY_MAX_TOKENS);
    *file = (struct kv_store_file){.config = *config,
                                   .ops = folder->is_shared ? &kv_store_named : &kv_store_slots,
                                   .records_fd = -1,
                                   .slots_fd = -1,
                                   .slot_bytes = round_up(config->block_bytes, KV_STORE_PAGE_BYTES),
                                   .record_bytes = record_bytes,
                                   .head_bytes = round_up(record_bytes, KV_STORE_PAGE_BYTES),
                                   .generation = 1};
    size_t smallest = folder->is_shared ? file->head_bytes + file->slot_bytes
                                        : KV_STORE_PAGE_BYTES + file->slot_bytes + record_bytes +
                                              sizeof(uint64_t);
    if (folder->is_owner && config->max_bytes < (int64_t)smallest)
        return error_set(err, ERROR_CONFIG,
                         "kv-store-bytes %lld is too small, a block needs %zu bytes",
                         (long long)config->max_bytes, smallest);
    return folder->is_shared ? 0 : open_slots(file, err);
}

void kv_store_file_close(struct kv_store_file *file) {
    if (file->records_fd >= 0)
        close(file->records_fd);
    if (file->slots_fd >= 0)
        close(file->slots_fd);
    file->records_fd = file->slots_fd = -1;
}
