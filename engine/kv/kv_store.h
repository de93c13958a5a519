/* The lowest tier of KV memory: full blocks in files, found by content, checked, of bounded size,
 * and still there after a restart. In a folder of the operator's; kv_store_folder.h and
 * kv_store_file.h describe what is in it.
 *
 * A block is found only by a store with the same secret and identity, by equal key, previous key,
 * group and tokens. Whatever is damaged, cut off or left over in the files is a miss and is logged,
 * never a wrong answer. When it is full, the least recently used block leaves that has no
 * continuation in the store.
 *
 * One process owns a folder. Others with the same identity may read it while it does; each becomes
 * the owner when that one ends, unless it is read-only. It notices within some seconds what the
 * owner has added, and as a miss what it has dropped; kv_store_next_done takes it over, so that
 * what kv_store_has finds does not change between two calls of that.
 *
 * In a shared folder, of a network file system perhaps, each is an owner and notices that of the
 * others. Of all identities together the least recently used leaves.
 *
 * A disk that has not answered for some seconds has no jobs any more, and gets none until it does.
 *
 * A thread of low priority writes, unless it hurries, another reads. Functions are for the engine's
 * thread unless they say otherwise, and wait neither for the disk nor for a thread that does. */
#ifndef QUIRE_ENGINE_KV_KV_STORE_H
#define QUIRE_ENGINE_KV_KV_STORE_H

#include "config/base/error.h"
#include "engine/kv/prefix_cache.h"

#define KV_STORE_MAX_PARTS 24  /* three pools of BACKEND_MAX_RANKS ranks */
#define KV_STORE_MAX_JOBS 1024 /* of either kind that were accepted and are not reported yet */

struct kv_store;

/* Where some of a block's bytes lie. */
struct kv_store_part {
    void *data;
    size_t bytes;
};

struct kv_store_config {
    const char *directory; /* made with mode 0700 if it is missing; its parents must exist */
    int64_t max_bytes;     /* of all files together */
    const char *key_file;  /* 32 bytes or 64 hexadecimal digits; NULL: not encrypted */
    bool forgets;          /* what was stored before is dropped, and the secret stays in memory */
    bool read_only;        /* never becomes the owner */
    bool is_shared;        /* all write, on other machines too; for any identities */
    bool hurries;          /* somebody waits for what is written: not at the lowest priority */
    uint8_t identity[32];  /* of everything a block's bytes depend on, next to its content */
    size_t block_bytes;    /* of all parts; >= 1 */
    int32_t block_size;    /* tokens of a block */
    /* Called by the reading thread when jobs have ended; must not call the store. NULL: see
     * kv_store_set_wake. */
    void (*wake)(void *context);
    void *context;
};

/* Any one of these may be of the moment before. */
struct kv_store_counts {
    int32_t num_blocks, max_blocks;
    size_t block_bytes;  /* in the file */
    size_t memory_bytes; /* of the index and the jobs */
    bool is_owner;
    /* since start */
    uint64_t num_written, num_read, num_evicted;
    uint64_t bytes_written, bytes_read; /* of the blocks */
    uint64_t num_damaged;               /* found damaged, when the store was opened or later */
    uint64_t num_failed_writes;
    uint64_t write_ns, read_ns; /* that the threads worked */
};

/* A conversation that was saved by name: the keys of its blocks, and whatever the caller keeps next
 * to these. */
#define KV_SAVED_MAX_NAME_BYTES 128
struct kv_saved {
    struct block_key *keys; /* [num_keys], each for all groups */
    int32_t num_keys, num_groups;
    unsigned char *data; /* [num_bytes] */
    size_t num_bytes;
};

struct kv_store_done {
    int32_t tag;
    bool is_read;
    bool is_ok;          /* of a read: the parts have the block's bytes; otherwise undefined ones */
    int32_t num_drafted; /* of a read: what was given when it was written */
    int64_t ns;          /* that its thread worked on it */
};

/* Copies the configuration. Fails if the folder cannot be used, with a message that names the
 * option or file; with ERROR_UNAVAILABLE if another process owns it for something else. */
int kv_store_open(const struct kv_store_config *config, struct kv_store **out, struct error *err);
/* Finishes writes that were accepted, those that can be within some seconds, and reports nothing
 * any more. The parts of jobs are the caller's again. A thread that hangs in the disk is left with
 * what it uses. Accepts NULL. */
void kv_store_close(struct kv_store *store);

/* Replaces the configuration's function, while there are no jobs. Waits for a call of the one
 * before, which is not called any more. */
void kv_store_set_wake(struct kv_store *store, void (*wake)(void *context), void *context);

/* Returns the secret that all keys must be made with. Any thread; valid until close. */
const struct block_key_secret *kv_store_secret(const struct kv_store *store);
bool kv_store_is_owner(const struct kv_store *store);
/* Writes the name that stores with the same blocks have, and others do not. Any thread. */
#define KV_STORE_NAME_BYTES 24
void kv_store_name(const struct kv_store *store, char out[static KV_STORE_NAME_BYTES]);

/* Returns whether kv_store_read would find it. The tenant is not compared: the key depends on it. A
 * hit counts as a use. */
bool kv_store_has(struct kv_store *store, const struct block_content *content);
/* Notes that another server says it has written that block to the shared folder, where this one has
 * not seen it yet: kv_store_has finds it until a read does not. Then the folder is listed again,
 * since another block may have left the view for it. Does nothing in other folders, or if no block
 * can leave for it. */
void kv_store_expect(struct kv_store *store, const struct block_content *content);
/* Begins to write a block. Its parts, block_bytes together, must stay unchanged until the job is
 * reported. False: not the owner, its key is known (even if it is still being written), too many
 * jobs, no block can leave, or writing has failed several times and is tried again after a
 * minute. */
bool kv_store_write(struct kv_store *store, const struct block_content *content,
                    int32_t num_drafted, const struct kv_store_part *parts, int32_t num_parts,
                    int32_t tag);
/* Begins to read a block into the parts, which are the store's until the job is reported. False: it
 * is not in the store, or too many jobs. */
bool kv_store_read(struct kv_store *store, const struct block_content *content,
                   const struct kv_store_part *parts, int32_t num_parts, int32_t tag);
/* Reports a job that has ended. False: none has. What was written is found from then on. */
bool kv_store_next_done(struct kv_store *store, struct kv_store_done *out);
/* Returns whether all accepted jobs were reported. */
bool kv_store_is_idle(const struct kv_store *store);
/* Returns for how long the read that has begun last has been running; 0: it has ended. */
int64_t kv_store_reading_ns(const struct kv_store *store);
/* Ends all accepted jobs, which kv_store_next_done then reports. Reads end without success at once,
 * writes if they take more than some seconds. */
void kv_store_drain(const struct kv_store *store);
/* Finds none of the blocks any more. As the owner, the files are cleared soon after; otherwise they
 * stay as they are and nothing is found until the owner has cleared them, too. Jobs still end; a
 * read is then not ok. */
void kv_store_forget_all(struct kv_store *store);
/* Returns whether it may be the name of a conversation: 1 to KV_SAVED_MAX_NAME_BYTES of A-Z a-z 0-9
 * . _ - and begins with none of the last three. */
bool kv_saved_is_name(const char *name);
/* Frees both arrays. Accepts a zeroed one. */
void kv_saved_finish(struct kv_saved *saved);
/* Saves a conversation by name, in a file that is sealed like a block, instead of what has that
 * name. Blocks with its keys do not leave from now on, those that are written later neither. Any
 * thread; waits for the disk. ERROR_CONFIG: another process is the owner, or more than half of the
 * blocks would be kept. */
int kv_store_save(struct kv_store *store, const char *name, const struct kv_saved *saved,
                  struct error *err);
/* Reads what was saved; the caller frees what it has. Any thread; waits for the disk.
 * ERROR_UNAVAILABLE: nothing was saved by that name. */
int kv_store_read_saved(struct kv_store *store, const char *name, struct kv_saved *out,
                        struct error *err);
/* Removes it, and lets its blocks leave. Like kv_store_save. */
int kv_store_erase_saved(struct kv_store *store, const char *name, struct error *err);
/* Any thread. */
void kv_store_get_counts(struct kv_store *store, struct kv_store_counts *out);

#endif
