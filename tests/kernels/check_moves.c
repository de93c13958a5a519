/* Block moves beside the forward passes of two steps in flight, against one call at a time: the
 * same bits in both pools, in what attention gave, and in what was downloaded. Random steps first,
 * then what these do not have: transfers, new memory, moves within a step. A device that moves
 * blocks in a stream of its own shows a missing event here in one order or another of the
 * simulator's streams. */
#include "tests/kernels/moves_fixture.h"

#include "kernels/kv_type.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- Random steps --- */

/* Distinct blocks. */
static void draw_tables(struct moves_step *s, uint64_t *seed) {
    int32_t *tables = s->tables[0];
    for (int i = 0; i < MOVES_SEQS * MOVES_TABLE; i++) {
        bool is_new;
        do {
            tables[i] = kernel_fixture_random_in(seed, 0, MOVES_BLOCKS - 1);
            is_new = true;
            for (int k = 0; k < i; k++)
                is_new = is_new && tables[k] != tables[i];
        } while (!is_new);
    }
}

static struct moves_step draw_step(uint64_t *seed) {
    struct moves_step s = {
        .swapped_out = kernel_fixture_random_in(seed, 0, MOVES_BLOCKS - 1),
        .out_to = kernel_fixture_random_in(seed, 0, MOVES_HOST_BLOCKS - 1),
        .in_from = kernel_fixture_random_in(seed, 0, MOVES_HOST_BLOCKS - 1),
        .swapped_in = kernel_fixture_random_in(seed, 0, MOVES_BLOCKS - 1),
        .copied = kernel_fixture_random_in(seed, 0, MOVES_BLOCKS / 2 - 1),
        .copied_to = kernel_fixture_random_in(seed, MOVES_BLOCKS / 2, MOVES_BLOCKS - 1),
        .num_out = kernel_fixture_random_in(seed, 0, 1),
        .num_in = kernel_fixture_random_in(seed, 0, 1),
        .num_copies = kernel_fixture_random_in(seed, 0, 1),
        .num_seqs = kernel_fixture_random_in(seed, 0, MOVES_SEQS),
    };
    draw_tables(&s, seed);
    for (int i = 0; i < s.num_seqs; i++) {
        int32_t position = kernel_fixture_random_in(seed, 0, MOVES_TABLE * MOVES_BLOCK_SIZE - 1);
        s.positions[i] = position;
        s.context_lens[i] = position + 1;
        s.slots[i] = s.tables[i][position / MOVES_BLOCK_SIZE] * MOVES_BLOCK_SIZE +
                     position % MOVES_BLOCK_SIZE;
        s.query_start[i + 1] = i + 1;
    }
    return s;
}

/* One without sequences only moves. */
static void enqueue_step(struct moves_parts *p, const struct moves_step *s, int row) {
    moves_swap(p, SWAP_OUT, &s->swapped_out, &s->out_to, s->num_out);
    moves_swap(p, SWAP_IN, &s->swapped_in, &s->in_from, s->num_in);
    moves_copy(p, &s->copied, &s->copied_to, s->num_copies);
    if (s->num_seqs > 0) {
        moves_begin_step(p, s);
        moves_store(p, row);
        moves_attend(p, row);
        moves_may_wait(p);
    }
    moves_end_step(p);
}

/* What a step reads is gone once it was waited for. */
static void random_steps(struct moves_parts *p) {
    struct moves_step steps[2];
    uint64_t seed = p->seed;
    for (int i = 0; i < MOVES_ROWS; i++) {
        steps[i % 2] = draw_step(&seed);
        enqueue_step(p, &steps[i % 2], i);
        memset(&steps[(i + 1) % 2], 0xff, sizeof(steps[0]));
    }
    kernel_fixture_synchronize(p->backend);
}

static void test_random_steps(void **state) {
    for (int i = 0; i < moves_fixture.num_backends; i++) {
        struct moves_parts parts;
        if (!kernel_fixture_is_new_level(&moves_fixture, i))
            continue;
        moves_parts_init(&parts, moves_fixture.backends[i]);
        for (parts.seed = 0; parts.seed < MOVES_NUM_SEEDS; parts.seed++)
            moves_assert_order_is_kept(&parts, random_steps);
        moves_parts_finish(&parts);
    }
}

/* --- One hazard each --- */

/* What was swapped out is there after the wait for a step that did nothing else. */
static void swap_out_alone(struct moves_parts *p) {
    moves_swap(p, SWAP_OUT, moves_numbers, moves_numbers, 3);
    moves_end_step(p);
    moves_end_step(p); /* and waits for the first */
    memcpy(p->downloaded, p->host_pool.data, p->host_pool.bytes);
}

static void transfers(struct moves_parts *p) {
    struct backend *b = p->backend;
    const struct buffer *pool = &p->cache.buffer;
    moves_upload_random(p, pool->data, pool->bytes, 11);
    moves_may_wait(p);
    moves_swap(p, SWAP_OUT, moves_numbers, moves_numbers, MOVES_HOST_BLOCKS);
    moves_upload_random(p, pool->data, pool->bytes, 12);
    moves_may_wait(p);
    moves_swap(p, SWAP_IN, moves_numbers + 5, moves_numbers, MOVES_HOST_BLOCKS);
    b->ops->download(b, p->downloaded, pool->data, pool->bytes);
    moves_may_wait(p);
    moves_swap(p, SWAP_IN, moves_numbers, moves_numbers, MOVES_HOST_BLOCKS);
}

/* It is zeroed before anything comes to it. */
static void new_memory(struct moves_parts *p) {
    struct backend *b = p->backend;
    struct kv_cache first = p->cache;
    assert_int_equal(b->ops->buffer_alloc(b, first.buffer.bytes, &p->cache.buffer, NULL), 0);
    moves_may_wait(p);
    moves_swap(p, SWAP_IN, moves_numbers, moves_numbers, MOVES_HOST_BLOCKS);
    b->ops->download(b, p->downloaded, p->cache.buffer.data, p->cache.buffer.bytes);
    kernel_fixture_synchronize(b);
    b->ops->buffer_free(b, &p->cache.buffer);
    p->cache = first;
}

/* Between the ops that write and read the step's block; the first move is before the step. */
static void moves_within_a_step(struct moves_parts *p) {
    const struct moves_step s = moves_step_in(0);
    moves_swap_one(p, SWAP_IN, 3, 0);
    moves_begin_step(p, &s);
    moves_store(p, 0);
    moves_may_wait(p);
    moves_copy(p, &moves_numbers[3], &moves_numbers[4], 1);
    moves_swap_one(p, SWAP_OUT, 0, 1);
    moves_store(p, 1);
    moves_attend(p, 1);
    moves_may_wait(p);
    moves_swap_one(p, SWAP_IN, 0, 2);
    moves_attend(p, 2);
    moves_may_wait(p);
    moves_end_step(p);
    kernel_fixture_synchronize(p->backend);
}

static void test_swap_out_alone(void **state) {
    moves_check_all(swap_out_alone);
}

static void test_transfers(void **state) {
    moves_check_all(transfers);
}

static void test_new_memory(void **state) {
    moves_check_all(new_memory);
}

static void test_moves_within_a_step(void **state) {
    moves_check_all(moves_within_a_step);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swap_out_alone),      cmocka_unit_test(test_random_steps),
        cmocka_unit_test(test_transfers),           cmocka_unit_test(test_new_memory),
        cmocka_unit_test(test_moves_within_a_step),
    };
    moves_fixture_open(argc, argv);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&moves_fixture);
    return failed;
}
