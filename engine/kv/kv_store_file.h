/* The two files of the store of KV blocks, both of a fixed size that is reserved when they are
 * made.
 *
 * `records` begins with a page that says what the store is for. Then comes a record for each slot,
 * which names and seals the block in it, and after the records the last use of each slot. A record
 * and its block are sealed (kv_store_cipher.h) together with the slot's number and the store's
 * generation, a random number that is new each time the store begins anew: what is damaged, cut
 * off, elsewhere or left over is not found.
 *
 * `slots` has the blocks, each at a multiple of 4096 bytes. It is read and written without the page
 * cache (O_DIRECT) where the file system can: what the store holds does not displace the weights,
 * writes never pile up in memory, and they take half the processor time. Measured on ext4 on a
 * virtual disk, blocks in random order, GB/s: 512 KiB written 1.8 to 2.7 direct, 2.5 through the
 * cache; 2 MiB written 2.5 to 3.7 direct, 0.4 through the cache; 512 KiB read 1.2 direct, 0.9
 * through the cache if they are not in it; 128 KiB read 0.6 direct, 0.8 through the cache. Where
 * the file system cannot, writing waits until each block is on the disk and then leaves the cache.
 *
 * Before a slot is written its record is cleared, and the new one is written last. The numbers in
 * the files are in the machine's own byte order. */
#ifndef QUIRE_ENGINE_KV_KV_STORE_FILE_H
#define QUIRE_ENGINE_KV_KV_STORE_FILE_H

#include "engine/kv/kv_store_folder.h"

#include <sys/types.h>

#define KV_STORE_IDENTITY_BYTES 32

struct kv_store_file_config {
    const struct kv_store_folder *folder; /* copied from */
    unsigned char identity[KV_STORE_IDENTITY_BYTES];
    size_t block_bytes;
    int32_t block_size;
    int64_t max_bytes; /* of both files */
    bool read_only;    /* opened for reading only */
};

struct kv_store_file {
    struct kv_store_file_config config;
    int records_fd, slots_fd;
    bool is_direct; /* slots_fd */
    size_t slot_bytes, record_bytes;
    /* of the header that was read or written last */
    int32_t num_slots;
    uint64_t generation;
};

/* What one thread needs to read and write. */
struct kv_store_room {
    struct kv_store_cipher *cipher;
    unsigned char *block;  /* [slot_bytes], aligned to a page */
    unsigned char *record; /* [record_bytes] */
};

/* Opens the files. As the owner, makes them if they are missing, not of this store or not for this
 * identity; otherwise fails then. */
int kv_store_file_open(struct kv_store_file *file, const struct kv_store_file_config *config,
                       struct error *err);
/* Accepts one that failed to open. */
void kv_store_file_close(struct kv_store_file *file);

int kv_store_room_init(struct kv_store_room *room, const struct kv_store_file *file,
                       struct error *err);
/* Accepts a zeroed one. */
void kv_store_room_finish(struct kv_store_room *room);

/* Reads the header again, which its owner may have changed. Fails when it is not of this store. */
int kv_store_file_refresh(struct kv_store_file *file, struct kv_store_room *room,
                          struct error *err);
/* Returns a number that its owner changes when a record changes. 0: it cannot be read. */
uint64_t kv_store_file_num_changes(const struct kv_store_file *file);

/* --- For kv_store_slots.c --- */

/* What a block's seal is about, next to its bytes. Has no padding. */
struct kv_store_record_body {
    uint64_t generation;
    struct block_key key, previous;
    int32_t slot, group, num_drafted, unused;
    int32_t tokens[];
};

struct kv_store_record {
    struct kv_store_seal seal; /* of the rest */
    struct kv_store_seal block_seal;
    struct kv_store_record_body body;
};

/* Where it lies in its file. */
off_t kv_store_file_record_at(const struct kv_store_file *file, int32_t slot);
off_t kv_store_file_slot_at(const struct kv_store_file *file, int32_t slot);
/* Return -1 with errno, EIO for a file that ends before. */
int kv_store_file_read_at(int fd, void *data, size_t bytes, off_t at);
int kv_store_file_write_at(int fd, const void *data, size_t bytes, off_t at);
/* Tells others that records have changed; if that fails they see it with the next change. */
void kv_store_file_count_change(const struct kv_store_file *file);
/* Writes the header, with the file's generation. Returns -1 with errno. */
int kv_store_file_write_header(const struct kv_store_file *file, struct kv_store_room *room);

#endif
