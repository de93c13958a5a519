/* Scripts of block moves and steps on a backend, run twice: one call at a time, and as they come. A
 * script enqueues on the parts it is given. Ends the test where memory is short. */
#ifndef QUIRE_TESTS_KERNELS_MOVES_FIXTURE_H
#define QUIRE_TESTS_KERNELS_MOVES_FIXTURE_H

#include "tests/kernels/kernel_fixture.h"

enum {
    MOVES_BLOCK_SIZE = 16,
    MOVES_BLOCKS = 10,
    MOVES_HOST_BLOCKS = 5,
    MOVES_SEQS = 2,
    MOVES_TABLE = 2, /* blocks of a sequence */
    MOVES_HEAD_DIM = 64,
    MOVES_QKV_WIDTH = 3 * MOVES_HEAD_DIM,
    MOVES_ROWS = 50, /* of steps, at most */
    MOVES_NUM_SEEDS = 8,
    MOVES_RECORDED_BYTES = 1 << 16,
};

extern struct kernel_fixture moves_fixture;
extern const int32_t moves_numbers[MOVES_BLOCKS]; /* 0, 1, 2, ... */

/* The backend, its pools, and what steps read and write. */
struct moves_parts {
    struct backend *backend;
    struct kv_cache cache;
    struct buffer host_pool;
    void *qkv;      /* [MOVES_ROWS][MOVES_SEQS, MOVES_QKV_WIDTH]: of step i, row i */
    void *attended; /* [MOVES_ROWS][MOVES_SEQS, MOVES_HEAD_DIM] */
    char *downloaded;
    uint64_t seed; /* of random steps */
    bool one_at_a_time;
    bool is_step_in_flight;
    bool is_recording;
};

/* What a step reads of the host. */
struct moves_step {
    int32_t swapped_out, out_to, in_from, swapped_in, copied, copied_to; /* a block each */
    int32_t num_out, num_in, num_copies;                                 /* 0 or 1 */
    int32_t num_seqs; /* a token each, the last of its context */
    int32_t token_ids[MOVES_SEQS], query_start[MOVES_SEQS + 1], positions[MOVES_SEQS],
        slots[MOVES_SEQS];
    int32_t context_lens[MOVES_SEQS], tables[MOVES_SEQS][MOVES_TABLE];
};

/* Uploads bytes that depend on the seed. */
void moves_upload_random(struct moves_parts *p, void *data, size_t bytes, uint64_t seed);
void moves_parts_init(struct moves_parts *p, struct backend *b);
void moves_parts_finish(struct moves_parts *p);
/* Enqueue one call, and wait for it where the script runs one call at a time; after a call of
 * another op, moves_may_wait does that. */
void moves_may_wait(struct moves_parts *p);
void moves_swap(struct moves_parts *p, enum swap_direction direction, const int32_t *device_blocks,
                const int32_t *host_blocks, int32_t num_blocks);
void moves_copy(struct moves_parts *p, const int32_t *from, const int32_t *to, int32_t num_blocks);
void moves_swap_one(struct moves_parts *p, enum swap_direction direction, int32_t device_block,
                    int32_t host_block);
void moves_begin_step(struct moves_parts *p, const struct moves_step *s);
/* The tokens' k and v are those of this row. */
void moves_store(struct moves_parts *p, int row);
void moves_attend(struct moves_parts *p, int row);
/* Waits for the step before. */
void moves_end_step(struct moves_parts *p);
/* Runs the script both ways: all that it leaves has the same bits. */
void moves_assert_order_is_kept(struct moves_parts *p, void (*script)(struct moves_parts *p));
/* Likewise on every level and device. */
void moves_check_all(void (*script)(struct moves_parts *p));
/* A step of one sequence of one token, in this block. */
struct moves_step moves_step_in(int32_t block);

/* Opens moves_fixture by the arguments of main. */
void moves_fixture_open(int argc, char **argv);

#endif
