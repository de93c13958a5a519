/* The files of the store of KV blocks, in one of two ways.
 *
 * Of one owner (kv_store_slots.c): two files, both of a fixed size that is reserved when they are
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
 * Before a slot is written its record is cleared, and the new one is written last.
 *
 * Shared by processes and machines (kv_store_named.c): a file for each block, which begins with its
 * record in whole pages, under a name that follows from its content and the identity, in one of 256
 * folders. Slots are numbers in memory then.
 *
 * The numbers in the files are in the machine's own byte order. */
#ifndef QUIRE_ENGINE_KV_KV_STORE_FILE_H
#define QUIRE_ENGINE_KV_KV_STORE_FILE_H

#include "engine/kv/kv_store_folder.h"
#include "engine/kv/kv_store_index.h"

#include <sys/types.h>

#define KV_STORE_IDENTITY_BYTES 32
#define KV_STORE_PAGE_BYTES 4096

struct kv_store_ops;

struct kv_store_file_config {
    struct kv_store_folder *folder;
    unsigned char identity[KV_STORE_IDENTITY_BYTES];
    size_t block_bytes;
    int32_t block_size;
    int64_t max_bytes; /* of all files */
    bool read_only;    /* opened for reading only */
    bool hurries;      /* see kv_store_config */
};

struct kv_store_file {
    struct kv_store_file_config config;
    const struct kv_store_ops *ops;
    int records_fd, slots_fd;
    size_t slot_bytes, record_bytes, head_bytes; /* the last: a record in whole pages */
    uint64_t generation;
    /* of the header that was read or written last */
    int32_t num_slots;
    bool fits;             /* it was of this store */
    uint64_t seen_changes; /* when the records were read last */
};

/* What one thread needs to read and write. */
struct kv_store_room {
    struct kv_store_cipher *cipher;
    unsigned char *record; /* [head_bytes], aligned to a page */
    unsigned char *block;  /* [slot_bytes], follows the record */
};

enum kv_store_found {
    KV_STORE_FOUND,
    KV_STORE_GONE,    /* another process has removed or replaced it */
    KV_STORE_DAMAGED, /* the block is not what was written, or the disk fails */
};

/* What the two ways do differently. Each room is used by one thread at a time. */
struct kv_store_ops {
    /* Returns whether what is stored may have changed since it was loaded. May make this process
     * the owner. */
    bool (*look)(struct kv_store_file *file, struct kv_store_room *room);
    /* Makes an index of what is stored, which has begun. Adds up what is damaged. */
    int (*load)(struct kv_store_file *file, struct kv_store_room *room, struct kv_store_index **out,
                uint64_t *num_damaged, struct error *err);
    /* Writes room->block, which is undefined after that, and its record. `left`: what the slot had,
     * or NULL. On failure, which leaves errno, the slot has no block. */
    int (*write)(const struct kv_store_file *file, struct kv_store_room *room, int32_t slot,
                 const struct block_content *content, int32_t num_drafted,
                 const struct block_content *left);
    /* Reads a block into room->block and verifies that it is this content's. */
    enum kv_store_found (*read)(const struct kv_store_file *file, struct kv_store_room *room,
                                int32_t slot, uint64_t generation,
                                const struct block_content *content, int32_t *num_drafted);
    /* Removes all blocks of this identity; later ones are of that generation. */
    int (*renew)(struct kv_store_file *file, struct kv_store_room *room, uint64_t generation);
    /* Writes the last uses of all slots. NULL: done when a block is read. */
    int (*write_stamps)(const struct kv_store_file *file, const _Atomic uint64_t *stamps);
};

extern const struct kv_store_ops kv_store_slots, kv_store_named;

/* Opens the files, as the folder is shared or not. As the owner, makes them if they are missing,
 * not of this store or not for this identity; otherwise fails then. */
int kv_store_file_open(struct kv_store_file *file, const struct kv_store_file_config *config,
                       struct error *err);
/* Accepts one that failed to open. */
void kv_store_file_close(struct kv_store_file *file);

int kv_store_room_init(struct kv_store_room *room, const struct kv_store_file *file,
                       struct error *err);
/* Accepts a zeroed one. */
void kv_store_room_finish(struct kv_store_room *room);

/* --- For the two --- */

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

/* Fills and seals the room's record for its block, and seals that. Returns -1 with errno. */
int kv_store_record_seal(const struct kv_store_file *file, struct kv_store_room *room, int32_t slot,
                         uint64_t generation, const struct block_content *content,
                         int32_t num_drafted);
/* Opens the room's record. Returns whether it is of that slot, generation and content. */
bool kv_store_record_open(const struct kv_store_file *file, struct kv_store_room *room,
                          int32_t slot, uint64_t generation, const struct block_content *content);
/* Opens the room's block, of the record that was opened. */
bool kv_store_record_open_block(const struct kv_store_file *file, struct kv_store_room *room,
                                int32_t *num_drafted);

/* Where it lies in its file. */
off_t kv_store_file_record_at(const struct kv_store_file *file, int32_t slot);
off_t kv_store_file_slot_at(const struct kv_store_file *file, int32_t slot);
/* Opens a file of the folder without the page cache, if the file system can. Returns -1 with errno.
 */
int kv_store_file_open_direct(const struct kv_store_file *file, const char *name, int flags);
bool kv_store_file_is_direct(int fd);
/* Reads or writes all of it. Returns -1 with errno, EIO for a file that ends before. */
int kv_store_file_transfer(int fd, bool writes, void *data, size_t bytes, off_t at);
/* Reads the header again, which its owner may have changed. Returns whether it is of this store. */
bool kv_store_file_refresh(struct kv_store_file *file, struct kv_store_room *room);
/* Returns a number that its owner changes when a record changes. 0: it cannot be read. */
uint64_t kv_store_file_num_changes(const struct kv_store_file *file);
/* Tells others that records have changed; if that fails they see it with the next change. */
void kv_store_file_count_change(const struct kv_store_file *file);
/* Writes the header, with the file's generation. Returns -1 with errno. */
int kv_store_file_write_header(const struct kv_store_file *file, struct kv_store_room *room);

#endif
