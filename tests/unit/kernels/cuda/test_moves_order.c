/* The rule that orders block moves and the compute stream: what has to wait, what must not, and in
 * random steps with moves that no two pieces of work that touch a block are without an order. */
#include "kernels/cuda/step/moves_order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK_SIZE = 16, STRIDE = 4 };

static bool move(struct moves_order *order, int32_t block) {
    struct block_set blocks = {0};
    block_set_add(&blocks, &block, 1);
    return moves_order_move(order, &blocks, BLOCK_SIZE);
}

/* Two sequences, of three and one blocks; what else their tables hold they do not use. */
static const int32_t tables[2 * STRIDE] = {10, 11, 12, 99, 20, 98, 97, 96};
static const int32_t context_lens[2] = {2 * BLOCK_SIZE + 1, BLOCK_SIZE};
static const struct step_blocks step = {tables, context_lens, 2, STRIDE};
static const int32_t used[] = {10, 11, 12, 20};
static const int32_t unused[] = {9, 13, 99, 98, 97, 96, 21, 0, -1};

enum { NUM_USED = sizeof(used) / sizeof(used[0]), NUM_UNUSED = sizeof(unused) / sizeof(unused[0]) };

static struct moves_order *new_order(void) {
    struct moves_order *order = calloc(1, sizeof(*order));
    assert_non_null(order);
    return order;
}

/* --- What waits, and what does not --- */

static void test_moves_after_a_step(void **state) {
    struct moves_order *order = new_order();
    assert_false(moves_order_begin_step(order, &step));
    assert_false(moves_order_end_step(order));
    for (int i = 0; i < NUM_UNUSED; i++)
        assert_false(move(order, unused[i]));
    for (int i = 0; i < NUM_USED; i++) {
        moves_order_begin_step(order, &step);
        moves_order_end_step(order);
        assert_true(move(order, used[i]));
        assert_false(move(order, used[i])); /* it waits once */
    }
    free(order);
}

/* The same tables, of a sequence in two groups. */
static void test_moves_after_a_step_of_groups(void **state) {
    static const struct step_blocks groups = {tables, context_lens, 1, STRIDE, 2, 1};
    static const int32_t blocks[] = {10, 11, 12, 20, 98, 97};
    struct moves_order *order = new_order();
    for (int i = 0; i < 6; i++) {
        moves_order_begin_step(order, &groups);
        moves_order_end_step(order);
        assert_true(move(order, blocks[i]));
        assert_false(move(order, 99) || move(order, 96));
    }
    free(order);
}

static void test_step_after_moves(void **state) {
    struct moves_order *order = new_order();
    for (int i = 0; i < NUM_UNUSED; i++)
        move(order, unused[i]);
    assert_false(moves_order_begin_step(order, &step));
    assert_true(moves_order_end_step(order)); /* with which they are done */
    assert_false(moves_order_begin_step(order, &step));
    assert_false(moves_order_end_step(order));
    for (int i = 0; i < NUM_USED; i++) {
        move(order, used[i]);
        assert_true(moves_order_begin_step(order, &step));
        assert_false(moves_order_end_step(order));
    }
    free(order);
}

static void test_moves_alone(void **state) {
    struct moves_order *order = new_order();
    assert_false(move(order, 3));
    assert_true(moves_order_end_step(order));
    assert_false(moves_order_end_step(order));
    assert_false(move(order, 3));
    assert_true(moves_order_end_step(order));
    free(order);
}

/* Moves may be given while the step before them is not done, and so wait for that; a step of moves
 * alone between does not hide it. */
static void test_step_before_moves_alone(void **state) {
    struct moves_order *order = new_order();
    moves_order_begin_step(order, &step);
    moves_order_end_step(order);
    assert_false(move(order, unused[0]));
    assert_true(moves_order_end_step(order));
    assert_true(move(order, used[0]));
    free(order);
}

static void test_anything(void **state) {
    struct moves_order *order = new_order();
    assert_false(moves_order_anything(order));
    assert_true(move(order, unused[0]));
    assert_false(move(order, unused[0]));
    assert_true(moves_order_anything(order));
    assert_false(moves_order_anything(order));
    /* A step that ends does not make less of it. */
    moves_order_begin_step(order, &step);
    moves_order_end_step(order);
    assert_true(move(order, unused[0]));
    free(order);
}

/* The first one's blocks are not known any more. */
static void test_two_steps_begun(void **state) {
    struct moves_order *order = new_order();
    const struct step_blocks none = {NULL, NULL, 0, STRIDE};
    moves_order_begin_step(order, &step);
    moves_order_begin_step(order, &none);
    moves_order_end_step(order);
    assert_true(move(order, used[0]));
    free(order);
}

/* A pool of smaller blocks: the same tokens are in more of them. */
static void test_block_sizes(void **state) {
    struct moves_order *order = new_order();
    struct block_set blocks = {0};
    block_set_add(&blocks, &tables[3], 1);
    moves_order_begin_step(order, &step);
    moves_order_end_step(order);
    assert_false(moves_order_move(order, &blocks, BLOCK_SIZE));
    assert_true(moves_order_move(order, &blocks, 10));
    free(order);
}

/* --- Random steps --- */

enum { BLOCKS = 10, MAX_WORK = 4096, STEPS = 200, TABLE = 2 };

enum stream { COMPUTE, MOVES };

struct work {
    enum stream stream;
    int index;       /* within its stream */
    uint32_t blocks; /* bits */
};

struct history {
    struct moves_order *order;
    struct work work[MAX_WORK];
    int num_work, num_done; /* the host waited for so many */
    int num_of[2];          /* streams */
    int known_by[2];        /* of the other stream's work, by each: its first so many are done */
    int num_waits;
    int num_free; /* pieces of work that may run beside some of the other stream's */
    int32_t tables[2][TABLE], context_lens[2];
    uint32_t seed;
};

static uint32_t random_below(struct history *h, uint32_t bound) {
    h->seed = h->seed * 1664525 + 1013904223;
    return (h->seed >> 16) % bound;
}

/* Within a stream work is in order. It has to come after all of the other's that touches its
 * blocks: the last of that is enough. */
static void add_work(struct history *h, enum stream stream, uint32_t blocks, bool waits) {
    enum stream other = stream == MOVES ? COMPUTE : MOVES;
    assert_true(h->num_work < MAX_WORK);
    if (waits)
        h->known_by[stream] = h->num_of[other];
    h->num_waits += waits;
    h->num_free += h->known_by[stream] < h->num_of[other];
    for (int i = h->num_work - 1; i >= h->num_done; i--)
        if (h->work[i].stream == other && (h->work[i].blocks & blocks) != 0) {
            assert_true(h->work[i].index < h->known_by[stream]);
            break;
        }
    h->work[h->num_work++] = (struct work){stream, h->num_of[stream]++, blocks};
}

static void add_move(struct history *h, bool is_in_step) {
    int32_t pair[2] = {(int32_t)random_below(h, BLOCKS), (int32_t)random_below(h, BLOCKS)};
    int32_t num_blocks = 1 + (int32_t)random_below(h, 2);
    struct block_set blocks = {0};
    uint32_t bits = 0;
    for (int i = 0; i < num_blocks; i++)
        bits |= 1U << pair[i];
    block_set_add(&blocks, pair, num_blocks);
    if (is_in_step)
        add_work(h, COMPUTE, bits, moves_order_anything(h->order));
    else
        add_work(h, MOVES, bits, moves_order_move(h->order, &blocks, BLOCK_SIZE));
}

static void add_step(struct history *h) {
    uint32_t bits = 0;
    int32_t num_seqs = (int32_t)random_below(h, 3);
    for (int32_t s = 0; s < num_seqs; s++) {
        h->context_lens[s] = 1 + (int32_t)random_below(h, TABLE * BLOCK_SIZE);
        for (int i = 0; i < TABLE; i++) {
            h->tables[s][i] = (int32_t)random_below(h, BLOCKS);
            if (i * BLOCK_SIZE < h->context_lens[s])
                bits |= 1U << h->tables[s][i];
        }
    }
    const struct step_blocks begun = {h->tables[0], h->context_lens, num_seqs, TABLE};
    add_work(h, COMPUTE, bits, moves_order_begin_step(h->order, &begun));
    while (random_below(h, 5) == 0) {
        add_move(h, true);
        add_work(h, COMPUTE, bits, false);
    }
}

/* All of the step, moves too, is before its end. */
static void end_step(struct history *h) {
    add_work(h, COMPUTE, 0, moves_order_end_step(h->order));
    assert_int_equal(h->known_by[COMPUTE], h->num_of[MOVES]);
}

static void synchronize(struct history *h) {
    add_work(h, COMPUTE, 0, moves_order_synchronize(h->order));
    assert_int_equal(h->known_by[COMPUTE], h->num_of[MOVES]);
    h->num_done = h->num_work;
}

static void test_random_steps(void **state) {
    struct history *h = calloc(1, sizeof(*h));
    assert_non_null(h);
    for (uint32_t seed = 0; seed < 200; seed++) {
        int end_before = 0;
        *h = (struct history){.order = new_order(), .seed = seed};
        for (int i = 0; i < STEPS; i++) {
            while (random_below(h, 2) == 0)
                add_move(h, false);
            if (random_below(h, 10) == 0)
                synchronize(h);
            if (random_below(h, 4) != 0)
                add_step(h);
            if (random_below(h, 10) == 0)
                add_work(h, COMPUTE, UINT32_MAX, moves_order_anything(h->order));
            end_step(h);
            if (h->num_done < end_before)
                h->num_done = end_before; /* the step before is waited for, this one is not */
            end_before = h->num_work;
        }
        assert_true(h->num_waits > STEPS / 20 && h->num_free > STEPS / 20);
        free(h->order);
    }
    free(h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moves_after_a_step),
        cmocka_unit_test(test_step_after_moves),
        cmocka_unit_test(test_moves_after_a_step_of_groups),
        cmocka_unit_test(test_moves_alone),
        cmocka_unit_test(test_step_before_moves_alone),
        cmocka_unit_test(test_anything),
        cmocka_unit_test(test_two_steps_begun),
        cmocka_unit_test(test_block_sizes),
        cmocka_unit_test(test_random_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
