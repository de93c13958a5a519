/* The memory manager of PagedAttention (Kwon et al., "Efficient Memory Management for Large
 * Language Model Serving with PagedAttention", SOSP 2023, section 4): which block of the KV cache
 * belongs to which table, shared by reference count, copied when written to, found again by
 * content, moved to host memory and back.
 *
 * It decides nothing: the scheduler calls it while planning a step. The block moves that become
 * necessary are listed; the device makes them before it computes the step's tokens, in this order:
 * swap out, swap in, copy. Within each list no block is both a source and a destination, and no
 * block is a destination twice.
 *
 * A step is IN FLIGHT from block_manager_submit, which empties the lists, to block_manager_collect.
 * Steps run in the order in which they are submitted. A block that a table drops while a step in
 * flight uses that table is handed out again only after that step was collected. That is stricter
 * than the order requires.
 *
 * Below the device there may be two tiers for what the prefix cache loses there: free host blocks,
 * and a store (kv_tier.h). What they have is found like what is on the device. From the host it
 * comes with the step that is being planned; a read of the store takes longer, and the table of a
 * sequence AWAITS its blocks meanwhile.
 *
 * The keys and values of a draft model lie in blocks with the same ids (rank_draft.h), so they are
 * shared, copied and moved with those of the model. They are computed later, or never: each block
 * knows of how many of its tokens there are any.
 *
 * Engine thread only. All memory is allocated by block_manager_init. */
#ifndef QUIRE_ENGINE_KV_BLOCK_MANAGER_H
#define QUIRE_ENGINE_KV_BLOCK_MANAGER_H

#include "config/serving_limits.h"
#include "engine/kv/move_list.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/block_table.h"
#include "engine/kv/kv_tier.h"
#include "engine/kv/prefix_cache.h"
#include "engine/kv/token_view.h"

struct block_manager_config {
    const struct serving_limits *limits; /* blocks of both pools */
    int32_t num_tenants;                 /* >= 1; eviction queues: a tenant modulo this has one */
    bool caching;                        /* prefix caching: blocks are found again by content */
    bool drafts_ahead; /* set by the scheduler: what is drafted in a place is of the token after it
                          (an MTP layer) */
    struct block_key_secret secret;     /* secret of the keys of cached prefixes */
    const struct kv_event_sink *events; /* outlives the manager; may be NULL */
    bool keeps_evicted; /* with caching: blocks that the cache loses on the device are kept in free
                           host blocks */
    const struct kv_tier *store; /* with caching and host blocks: full blocks are written to it.
                                    Outlives the manager; NULL: none */
};

/* A block of the cache that the store is to get. */
struct unsaved_block {
    int32_t block;
    uint64_t serial; /* of its content */
};

/* What a host block of a tier is used for. It is pinned, except when it is ready. */
enum kept_state {
    KEPT_NONE,
    KEPT_READY,   /* has its content */
    KEPT_FILLING, /* gets it by a step that is planned, in flight or was just collected */
    KEPT_WRITING, /* has it, and the store copies it */
    KEPT_READING, /* gets it from the store */
};

/* Contents of host blocks that belong to no table, and the traffic with the store. Zeroed: there is
 * no tier below the device. */
struct block_tiers {
    struct prefix_cache kept; /* which content a host block has, or gets */
    enum kept_state *states;  /* [num_host_blocks] */
    uint64_t *filling_steps;  /* [num_host_blocks] the number of the step that fills it */
    int32_t *filling;         /* [num_filling], room for num_host_blocks */
    int32_t num_filling;
    struct unsaved_block *unsaved; /* a ring of num_blocks */
    int32_t first_unsaved, num_unsaved;
    int32_t num_reads, num_writes; /* running jobs of the store */
    int64_t read_block_ns;         /* a recent mean; 0: nothing was read yet */

    /* since start */
    uint64_t num_kept;     /* blocks copied to the host for a tier */
    uint64_t num_evicted;  /* of these, from the host, for others */
    uint64_t num_promoted; /* blocks that came back from there */
    uint64_t num_read;     /* of these or others, from the store */
    uint64_t num_failed_reads;
};

enum block_load { BLOCKS_COMING, BLOCKS_THERE, BLOCKS_LOST };

/* The device block that a host block was copied from. */
struct swap_origin {
    int32_t block;
    uint64_t serial; /* of its content in the cache; 0: not in the cache */
};

struct block_manager {
    struct block_manager_config config;
    struct block_key public_root; /* root of the first tenant, without a salt or an adapter */
    struct block_pool pool;       /* of the device */
    struct block_pool host;
    struct prefix_cache cache;   /* zeroed without caching */
    struct move_list swap_out;   /* device -> host */
    struct move_list swap_in;    /* host -> device */
    struct move_list copies;     /* device -> device */
    struct swap_origin *origins; /* [num_host_blocks] */
    struct block_tiers tiers;
    int32_t *moved_to;      /* scratch of the swaps: [larger pool], -1 */
    uint64_t num_submitted; /* steps; also the serial number of the last one */
    uint64_t num_collected;
    int32_t *deferred; /* [num_deferred], room for num_blocks: blocks pinned until steps in flight
                          are collected, so that they do not become free earlier */
    int32_t num_deferred;

    /* since start */
    uint64_t num_copied_blocks; /* moves that were submitted */
    uint64_t num_swapped_out_blocks;
    uint64_t num_swapped_in_blocks;
};

/* Returns -1 when memory is short. */
int block_manager_init(struct block_manager *manager, const struct block_manager_config *config);
size_t block_manager_bytes(const struct block_manager_config *config); /* what it allocates */
/* Every table must have been released. Waits for the store. Accepts a zeroed one. */
void block_manager_finish(struct block_manager *manager);

/* Appends cached blocks to a table whose num_blocks * block_size tokens are all computed: of the
 * longest prefix among the first `limit` tokens of which the cache has all that the next token
 * sees. Of the groups that have the window, drops the blocks before that, where there are other
 * groups too. Returns the number of tokens added (0 without caching). The appended blocks may be in
 * use by others. Of what only the host has, nothing is taken if there are too few free blocks for
 * it. */
int32_t block_manager_match(struct block_manager *manager, struct block_table *table,
                            const struct token_view *tokens, int32_t limit);
/* Returns how many tokens the longest such prefix has with what the store has, beyond the table; 0:
 * none, or there are too few free blocks for it. *out_num_reads: blocks to read for it. */
int32_t block_manager_find_stored(struct block_manager *manager, struct block_table *table,
                                  const struct token_view *tokens, int32_t limit,
                                  int32_t *out_num_reads);
/* Appends the blocks of this prefix, of which the next call of block_manager_find_stored would
 * return the same. The table awaits them until block_manager_load returns something else than
 * BLOCKS_COMING; until then it may only be released. */
void block_manager_await(struct block_manager *manager, struct block_table *table,
                         const struct token_view *tokens, int32_t limit);
/* Continues to bring what a table awaits. THERE: the step being planned brings the last of it.
 * LOST: the store has lost some, or `gives_up`; the table then keeps what it has all tokens of,
 * nothing where layers have a window. */
enum block_load block_manager_load(struct block_manager *manager, struct block_table *table,
                                   const struct token_view *tokens, bool gives_up);
/* How far the store was read for a prompt that waits. Zeroed: not at all. */
struct read_ahead {
    uint64_t owner; /* for the caller */
    int32_t num_blocks;
    struct block_key key; /* of the last of them */
    int32_t num_reads;    /* at most half of the host's blocks */
    bool is_done;
};

/* Continues to read what only the store has of the longest prefix among the first `limit` tokens
 * into host blocks, as long as there are some, for an empty table of these tokens. What is read has
 * no owner: it may be gone again when the table asks for it. */
void block_manager_read_ahead(struct block_manager *manager, const struct block_table *table,
                              const struct token_view *tokens, int32_t limit,
                              struct read_ahead *ahead);
/* Returns how many blocks the table still awaits. */
int32_t block_manager_num_awaited(const struct block_manager *manager,
                                  const struct block_table *table);
/* Returns how long reads of num_reads blocks are likely to take: as the last ones did, and what
 * the running one has already taken if that is long: the disk may have become slow, or hang. */
int64_t block_manager_reads_ns(const struct block_manager *manager, int32_t num_reads);
/* Reports that a prefix is computed because that would take too long. The time expected becomes
 * shorter, so that a disk which was slow for a while is tried again. */
void block_manager_note_unread(struct block_manager *manager);
/* Takes what the store has done, and gives it blocks that steps have brought to the host. Called
 * before a step is planned, unless the executor has lost its memory since the last step. */
void block_manager_poll(struct block_manager *manager);
/* Has the step being planned copy blocks to the host that the store does not have yet. Called after
 * whatever else needs host blocks, and before block_manager_add_drafted: what the step computes in
 * such a block is not copied. */
void block_manager_save(struct block_manager *manager);
/* Has the store get the full blocks of a table that it does not have, even those that it had
 * before. */
void block_manager_offer(struct block_manager *manager, const struct block_table *table);
/* Returns how many of the first num_blocks places of a table, which are computed, the store has all
 * blocks of that the table holds; `known` is an earlier answer, or 0. */
int32_t block_manager_num_stored(const struct block_manager *manager,
                                 const struct block_table *table, int32_t known,
                                 int32_t num_blocks);
/* Returns whether a block is on its way to the store. */
bool block_manager_has_writes(const struct block_manager *manager);
/* Forgets what the host keeps, and ends the jobs of the store: reads at once, writes within some
 * seconds. It does not touch the host's blocks after that. */
void block_manager_end_jobs(struct block_manager *manager);
/* Returns whether both tables, in each of which exactly num_blocks full blocks are computed, would
 * compute the same full block next; then one of them need not. Each has the tokens of that block.
 * False without caching. */
bool block_manager_same_next(const struct block_manager *manager, struct block_table *a,
                             const struct token_view *a_tokens, struct block_table *b,
                             const struct token_view *b_tokens, int32_t num_blocks);
/* Adds the full blocks of a table, whose first num_computed tokens are computed, to the cache. A
 * full block whose content the cache already has in another block is replaced by that block. Does
 * nothing without caching. */
void block_manager_publish(struct block_manager *manager, struct block_table *table,
                           const struct token_view *tokens, int32_t num_computed);

/* Empties the cache on the device and the host, but not the store. Tables keep their blocks, and
 * publish what they compute from then on. Called between the plans of two steps. */
void block_manager_flush_cache(struct block_manager *manager);

/* Reports that both pools have lost their content: empties the cache, and waits until the store
 * does not use host blocks any more. */
void block_manager_lose_contents(struct block_manager *manager);

/* Appends a block of each group; false when there are not as many free. */
bool block_manager_grow(struct block_manager *manager, struct block_table *table);
/* Returns how many free blocks writing at that position needs for copies of those that have another
 * owner. 0 beyond the table. */
int32_t block_manager_num_copies(const struct block_manager *manager,
                                 const struct block_table *table, int32_t position);
/* Makes the blocks at that position, which the table holds, writable: copies each that has another
 * owner, otherwise removes it from the cache. Returns false, and does nothing, when there are not
 * enough free blocks. */
bool block_manager_make_writable(struct block_manager *manager, struct block_table *table,
                                 int32_t position);
/* Makes the empty table `to` share the blocks of the first num_tokens tokens of `from`; the last
 * one may be partly filled. Both have the same root. */
void block_manager_fork(struct block_manager *manager, const struct block_table *from,
                        struct block_table *to, int32_t num_tokens);
/* Of the groups that have the window, drops the blocks that hold only tokens before `position`. */
void block_manager_drop_before(struct block_manager *manager, struct block_table *table,
                               int32_t position);
/* Releases the blocks after those of the first num_tokens tokens, and forgets what the draft model
 * has computed of the tokens after these. */
void block_manager_trim(struct block_manager *manager, struct block_table *table,
                        int32_t num_tokens);
/* Releases all blocks, those on the host too, and cancels the copies into them that the step being
 * planned listed. The root stays. */
void block_manager_release(struct block_manager *manager, struct block_table *table);

/* Returns of how many of the table's first places, `most` at most, the draft model has computed
 * keys and values. Those that fell out of the window count, too. */
int32_t block_manager_num_drafted(const struct block_manager *manager,
                                  const struct block_table *table, int32_t most);
/* Notes that the step being planned computes those of the tokens from `begin` to `end`, which the
 * table's blocks hold. All before `begin` are computed. */
void block_manager_add_drafted(struct block_manager *manager, const struct block_table *table,
                               int32_t begin, int32_t end);

/* Returns the number of blocks of all groups that the table holds. */
int64_t block_manager_num_held(const struct block_manager *manager,
                               const struct block_table *table);
/* Returns the number of distinct blocks that the tables hold (all on the same side). */
int32_t block_manager_count_distinct(struct block_manager *manager,
                                     struct block_table *const *tables, int32_t num_tables);
/* Moves the tables, which belong together, to the host pool, or back. What they share stays shared.
 * When swapping in, full blocks whose content is still in the cache are taken from there, and the
 * next publish adds the others to the cache again. Returns false and moves nothing when the other
 * side does not have enough free blocks, or some of the content is still to come in, with this step
 * or later. */
bool block_manager_swap_out(struct block_manager *manager, struct block_table *const *tables,
                            int32_t num_tables);
bool block_manager_swap_in(struct block_manager *manager, struct block_table *const *tables,
                           int32_t num_tables);

/* Returns whether any block must be moved before the step computes. */
bool block_manager_has_moves(const struct block_manager *manager);
/* Reports that the step with the listed moves was submitted. The tables are those of the sequences
 * that it computes. */
void block_manager_submit(struct block_manager *manager, struct block_table *const *tables,
                          int32_t num_tables);
/* Reports that the oldest step in flight has run. Called before its results are published. */
void block_manager_collect(struct block_manager *manager);

#endif
