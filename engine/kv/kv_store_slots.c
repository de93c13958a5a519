/* Blocks in slots of one file, with their records in another. */
#include "engine/kv/kv_store_file.h"

#include "config/base/log.h"
#include "engine/kv/kv_store_saved.h"
#include "config/base/numbers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES (1 << 20) /* of records, read at a time */
#define STAMPS_PER_WRITE 8192

/* --- Records --- */

static size_t body_bytes(const struct kv_store_file *file) {
    return file->record_bytes - offsetof(struct kv_store_record, body);
}

static bool is_cleared(const void *data, size_t bytes) {
    const char *at = data;
    return bytes == 0 || (at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0);
}

/* Decrypts it; returns whether it is of that slot and generation. */
static bool open_record(const struct kv_store_file *file, struct kv_store_cipher *cipher,
                        struct kv_store_record *record, int32_t slot, uint64_t generation) {
    size_t bytes = file->record_bytes - offsetof(struct kv_store_record, block_seal);
    return kv_store_cipher_open(cipher, NULL, 0, &record->block_seal, bytes, &record->seal) &&
           record->body.slot == slot && record->body.generation == generation;
}

int kv_store_record_seal(const struct kv_store_file *file, struct kv_store_room *room, int32_t slot,
                         uint64_t generation, const struct block_content *content,
                         int32_t num_drafted) {
    struct kv_store_record *record = (struct kv_store_record *)room->record;
    memset(record, 0, file->head_bytes);
    record->body.generation = generation;
    record->body.key = content->key;
    record->body.previous = content->previous;
    record->body.slot = slot;
    record->body.group = content->group;
    record->body.num_drafted = num_drafted;
    memcpy(record->body.tokens, content->tokens,
           (size_t)file->config.block_size * sizeof(*content->tokens));
    errno = EIO; /* when sealing fails */
    if (kv_store_cipher_seal(room->cipher, &record->body, body_bytes(file), room->block,
                             file->config.block_bytes, &record->block_seal) != 0)
        return -1;
    size_t bytes = file->record_bytes - offsetof(struct kv_store_record, block_seal);
    return kv_store_cipher_seal(room->cipher, NULL, 0, &record->block_seal, bytes, &record->seal);
}

bool kv_store_record_open(const struct kv_store_file *file, struct kv_store_room *room,
                          int32_t slot, uint64_t generation, const struct block_content *content) {
    struct kv_store_record *record = (struct kv_store_record *)room->record;
    return open_record(file, room->cipher, record, slot, generation) &&
           block_key_equal(&record->body.key, &content->key) &&
           block_key_equal(&record->body.previous, &content->previous) &&
           record->body.group == content->group &&
           memcmp(record->body.tokens, content->tokens,
                  (size_t)file->config.block_size * sizeof(*content->tokens)) == 0;
}

bool kv_store_record_open_block(const struct kv_store_file *file, struct kv_store_room *room,
                                int32_t *num_drafted) {
    const struct kv_store_record *record = (const struct kv_store_record *)room->record;
    *num_drafted = record->body.num_drafted;
    return kv_store_cipher_open(room->cipher, &record->body, body_bytes(file), room->block,
                                file->config.block_bytes, &record->block_seal);
}

static struct block_content content_of(const struct kv_store_record *record) {
    return (struct block_content){.key = record->body.key,
                                  .group = record->body.group,
                                  .previous = record->body.previous,
                                  .tokens = record->body.tokens};
}

/* Returns [num_slots], 0 for those that cannot be read. */
static uint64_t *read_stamps(const struct kv_store_file *file) {
    size_t count = (size_t)file->num_slots;
    uint64_t *stamps = calloc(count, sizeof(*stamps));
    if (stamps != NULL)
        (void)kv_store_file_transfer(file->records_fd, false, stamps, count * sizeof(*stamps),
                                     kv_store_file_record_at(file, file->num_slots));
    return stamps;
}

/* Reads all records in order into the index; returns how many are damaged, -1: no memory. */
static int32_t load_records(const struct kv_store_file *file, struct kv_store_room *room,
                            struct kv_store_index *index) {
    int32_t per_chunk = max_int32((int32_t)(CHUNK_BYTES / file->record_bytes), 1);
    size_t chunk_bytes = (size_t)per_chunk * file->record_bytes;
    char *chunk = malloc(chunk_bytes);
    uint64_t *stamps = read_stamps(file);
    bool has_memory = chunk != NULL && stamps != NULL;
    int32_t num_damaged = 0;
    for (int32_t slot = 0; has_memory && slot < file->num_slots; slot++) {
        if (slot % per_chunk == 0) {
            memset(chunk, 0, chunk_bytes); /* what a short file does not have is cleared */
            (void)kv_store_file_transfer(file->records_fd, false, chunk, chunk_bytes,
                                         kv_store_file_record_at(file, slot));
        }
        struct kv_store_record *record =
            (struct kv_store_record *)(chunk + (size_t)(slot % per_chunk) * file->record_bytes);
        if (is_cleared(record, file->record_bytes))
            continue;
        if (open_record(file, room->cipher, record, slot, file->generation)) {
            const struct block_content content = content_of(record);
            kv_store_index_load(index, slot, &content, stamps[slot]);
        } else {
            num_damaged++;
        }
    }
    free(chunk);
    free(stamps);
    return has_memory ? num_damaged : -1;
}

/* Files that are not of this store any more have nothing. */
static int load(struct kv_store_file *file, struct kv_store_room *room, struct kv_store_index **out,
                uint64_t *num_damaged, struct error *err) {
    uint64_t changes = kv_store_file_num_changes(file);
    int32_t num_slots = file->fits ? file->num_slots : 1;
    struct kv_store_index *index = kv_store_index_create(num_slots, file->config.block_size);
    int32_t damaged = index == NULL ? -1 : file->fits ? load_records(file, room, index) : 0;
    if (damaged < 0) {
        kv_store_index_destroy(index);
        return error_set(err, ERROR_MEMORY, "kv-store: no memory for an index of %d blocks",
                         num_slots);
    }
    if (damaged > 0 && file->config.folder->is_owner) {
        log_warning("kv-store: %s: %d records are damaged, their blocks are lost",
                    file->config.folder->path, damaged);
        *num_damaged += (uint64_t)damaged;
    }
    if (file->config.folder->is_owner)
        kv_saved_keep_all(file, index);
    kv_store_index_begin(index);
    file->seen_changes = changes;
    *out = index;
    return 0;
}

static bool look(struct kv_store_file *file, struct kv_store_room *room) {
    struct kv_store_folder *folder = file->config.folder;
    if (kv_store_file_refresh(file, room) && kv_store_folder_try_lock(folder) &&
        !kv_store_file_refresh(file, room))
        kv_store_folder_unlock(folder); /* it has become another's meanwhile */
    return folder->is_owner || kv_store_file_num_changes(file) != file->seen_changes;
}

static int clear_record(const struct kv_store_file *file, struct kv_store_room *room,
                        int32_t slot) {
    memset(room->record, 0, file->record_bytes);
    return kv_store_file_transfer(file->records_fd, true, room->record, file->record_bytes,
                                  kv_store_file_record_at(file, slot));
}

/* --- Blocks --- */

static int write_block(const struct kv_store_file *file, void *block, int32_t slot) {
    if (kv_store_file_transfer(file->slots_fd, true, block, file->slot_bytes,
                               kv_store_file_slot_at(file, slot)) != 0)
        return -1;
    if (kv_store_file_is_direct(file->slots_fd))
        return 0;
    unsigned flags =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (sync_file_range(file->slots_fd, kv_store_file_slot_at(file, slot), (off_t)file->slot_bytes,
                        flags) != 0 &&
        errno == EIO)
        return -1;
    posix_fadvise(file->slots_fd, kv_store_file_slot_at(file, slot), (off_t)file->slot_bytes,
                  POSIX_FADV_DONTNEED);
    return 0;
}

static int write_slot(const struct kv_store_file *file, struct kv_store_room *room, int32_t slot,
                      const struct block_content *content, int32_t num_drafted,
                      const struct block_content *left) {
    (void)left; /* is overwritten */
    if (clear_record(file, room, slot) != 0 ||
        kv_store_record_seal(file, room, slot, file->generation, content, num_drafted) != 0 ||
        write_block(file, room->block, slot) != 0 ||
        kv_store_file_transfer(file->records_fd, true, room->record, file->record_bytes,
                               kv_store_file_record_at(file, slot)) != 0)
        return -1;
    kv_store_file_count_change(file);
    return 0;
}

/* Returns whether the slot's record is this content's. */
static bool read_record(const struct kv_store_file *file, struct kv_store_room *room, int32_t slot,
                        uint64_t generation, const struct block_content *content) {
    return kv_store_file_transfer(file->records_fd, false, room->record, file->record_bytes,
                                  kv_store_file_record_at(file, slot)) == 0 &&
           kv_store_record_open(file, room, slot, generation, content);
}

static enum kv_store_found read_slot(const struct kv_store_file *file, struct kv_store_room *room,
                                     int32_t slot, uint64_t generation,
                                     const struct block_content *content, int32_t *num_drafted) {
    bool is_there = read_record(file, room, slot, generation, content);
    if (is_there &&
        kv_store_file_transfer(file->slots_fd, false, room->block, file->slot_bytes,
                               kv_store_file_slot_at(file, slot)) == 0 &&
        kv_store_record_open_block(file, room, num_drafted))
        return KV_STORE_FOUND;
    /* Another owner may have begun to write to the slot meanwhile, or before. */
    is_there = is_there && read_record(file, room, slot, generation, content);
    return is_there || file->config.folder->is_owner ? KV_STORE_DAMAGED : KV_STORE_GONE;
}

/* --- All --- */

static int renew(struct kv_store_file *file, struct kv_store_room *room, uint64_t generation) {
    file->generation = generation;
    if (kv_store_file_write_header(file, room) != 0)
        return -1;
    /* Records of the old generation are of no use, but have tokens in them. */
    off_t first = kv_store_file_record_at(file, 0);
    off_t bytes = kv_store_file_record_at(file, file->num_slots) - first;
    if (fallocate(file->records_fd, FALLOC_FL_ZERO_RANGE, first, bytes) != 0)
        for (int32_t slot = 0; slot < file->num_slots; slot++)
            if (clear_record(file, room, slot) != 0)
                return -1;
    (void)!fallocate(file->slots_fd, FALLOC_FL_ZERO_RANGE, 0,
                     kv_store_file_slot_at(file, file->num_slots));
    kv_store_file_count_change(file);
    return 0;
}

static int write_stamps(const struct kv_store_file *file, const _Atomic uint64_t *stamps) {
    uint64_t some[STAMPS_PER_WRITE];
    off_t at = kv_store_file_record_at(file, file->num_slots);
    for (int32_t first = 0; first < file->num_slots; first += STAMPS_PER_WRITE) {
        int32_t count = min_int32(file->num_slots - first, STAMPS_PER_WRITE);
        for (int32_t i = 0; i < count; i++)
            some[i] = atomic_load_explicit(&stamps[first + i], memory_order_relaxed);
        if (kv_store_file_transfer(file->records_fd, true, some, (size_t)count * sizeof(some[0]),
                                   at + (off_t)first * (off_t)sizeof(some[0])) != 0)
            return -1;
    }
    return 0;
}

const struct kv_store_ops kv_store_slots = {.look = look,
                                            .load = load,
                                            .write = write_slot,
                                            .read = read_slot,
                                            .renew = renew,
                                            .write_stamps = write_stamps};
