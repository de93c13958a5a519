/* The plan of a step's attention: every row over all it sees exactly once, parts within the slots,
 * no piece too short, blocks evenly loaded. */
#include "kernels/cuda/attention_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_SEQS 64
#define MAX_TOKENS 4096

/* Constants: Knuth's MMIX. */
static int32_t random_in(uint64_t *seed, int32_t low, int32_t high) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return low + (int32_t)((*seed >> 33) % (uint64_t)(high - low + 1));
}

struct batch {
    struct step_inputs step;
    int32_t query_start[MAX_SEQS + 1];
    int32_t context_lens[MAX_SEQS];
};

static void add(struct batch *batch, int32_t context, int32_t num_tokens) {
    int32_t s = batch->step.num_seqs++;
    batch->step.query_start = batch->query_start;
    batch->step.context_lens = batch->context_lens;
    batch->query_start[s + 1] = batch->query_start[s] + num_tokens;
    batch->context_lens[s] = context;
    batch->step.num_tokens = batch->query_start[s + 1];
}

static struct backend_config config_of(int32_t num_q_heads, int32_t num_kv_heads) {
    return (struct backend_config){.limits.max_num_batched_tokens = MAX_TOKENS,
                                   .limits.max_num_seqs = MAX_SEQS,
                                   .num_q_heads = num_q_heads,
                                   .num_kv_heads = num_kv_heads};
}

/* Token `t` of the context is seen by row `row` of the sequence. */
static bool is_seen(const struct batch *batch, const struct attention_plan_shape *shape, int32_t s,
                    int32_t row, int32_t t) {
    int32_t num_tokens = batch->query_start[s + 1] - batch->query_start[s];
    int32_t position = batch->context_lens[s] - num_tokens + row / shape->group;
    return t <= position && (shape->window == 0 || t > position - shape->window);
}

/* Counts how often each tile of 64 tokens is visited for each row of one sequence and head. */
static void check_rows(const struct attention_plan *plan, const struct batch *batch,
                       const struct attention_plan_shape *shape, int32_t s, int32_t head) {
    int32_t num_rows = (batch->query_start[s + 1] - batch->query_start[s]) * shape->group;
    int32_t num_tiles = (batch->context_lens[s] + 63) / 64;
    int *visits = calloc((size_t)(num_rows * num_tiles), sizeof(*visits));
    assert_non_null(visits);
    for (int32_t i = 0; i < plan->num_items; i++) {
        const struct attention_item *item = &plan->items[i];
        if (item->sequence != s || item->kv_head != head)
            continue;
        assert_int_equal(item->kv_begin % ATTENTION_KV_TILE, 0);
        assert_true(item->kv_begin < item->kv_end && item->kv_end <= batch->context_lens[s]);
        assert_int_equal(item->first_row % item->tile_rows, 0);
        for (int32_t r = item->first_row; r < num_rows && r < item->first_row + item->tile_rows;
             r++)
            for (int32_t t = item->kv_begin; t < item->kv_end; t += 64)
                visits[r * num_tiles + t / 64]++;
    }
    for (int32_t r = 0; r < num_rows; r++)
        for (int32_t t = 0; t < batch->context_lens[s]; t++) {
            int count = visits[r * num_tiles + t / 64];
            assert_in_range(count, is_seen(batch, shape, s, r, t) ? 1 : 0, 1);
        }
    free(visits);
}

/* Parts of a tile have its slots, each once, in the order of their ranges. */
static void check_parts(const struct attention_plan *plan, const struct step_inputs *step) {
    int32_t *ends = calloc((size_t)plan->num_parts + 1, sizeof(*ends));
    int32_t *begins = calloc((size_t)plan->num_parts + 1, sizeof(*begins));
    assert_true(ends != NULL && begins != NULL);
    for (int32_t i = 0; i < plan->num_items; i++) {
        const struct attention_item *item = &plan->items[i];
        if (item->num_parts == 1)
            continue;
        const int32_t *start = step->query_start + item->sequence;
        int32_t least = start[1] - start[0] == 1 ? 1 : ATTENTION_MIN_PIECE / 2;
        assert_true(item->kv_end - item->kv_begin >= least);
        assert_in_range(item->part, item->first_part, item->first_part + item->num_parts - 1);
        assert_true(item->first_part + item->num_parts <= plan->num_parts);
        assert_int_equal(ends[item->part], 0);
        begins[item->part] = item->kv_begin;
        ends[item->part] = item->kv_end;
    }
    for (int32_t i = 0; i < plan->num_items; i++)
        for (int32_t p = 1; p < plan->items[i].num_parts; p++)
            assert_int_equal(begins[plan->items[i].first_part + p],
                             ends[plan->items[i].first_part + p - 1]);
    assert_true(plan->num_parts <= attention_plan_max_parts(plan->num_blocks));
    free(begins);
    free(ends);
}

static int32_t cost_of(const struct attention_item *item) {
    return (item->kv_end - item->kv_begin + 63) / 64 + 1;
}

/* Longest first to the least loaded: no block has more than the mean and one item above it. */
static void check_balance(const struct attention_plan *plan) {
    int64_t total = 0, most = 0;
    int32_t longest = 0;
    assert_int_equal(plan->block_items[0], 0);
    assert_int_equal(plan->block_items[plan->num_blocks], plan->num_items);
    for (int32_t b = 0; b < plan->num_blocks; b++) {
        int64_t load = 0;
        assert_true(plan->block_items[b] <= plan->block_items[b + 1]);
        for (int32_t i = plan->block_items[b]; i < plan->block_items[b + 1]; i++) {
            int32_t cost = cost_of(&plan->items[i]);
            load += cost;
            longest = cost > longest ? cost : longest;
        }
        total += load;
        most = load > most ? load : most;
    }
    assert_true(most <= total / plan->num_blocks + longest);
}

static void check(const struct batch *batch, const struct attention_plan_shape *shape,
                  int32_t num_blocks, struct attention_plan *plan) {
    struct backend_config config =
        config_of(shape->group * shape->num_kv_heads, shape->num_kv_heads);
    assert_int_equal(attention_plan_init(plan, &config, num_blocks, NULL), 0);
    attention_plan_make(plan, &batch->step, shape);
    assert_true(plan->num_items <= plan->max_items);
    for (int32_t s = 0; s < batch->step.num_seqs; s++)
        for (int32_t head = 0; head < shape->num_kv_heads; head++)
            check_rows(plan, batch, shape, s, head);
    check_parts(plan, &batch->step);
    check_balance(plan);
}

static void test_tile_shapes(void **state) {
    const struct attention_plan_shape shape = {.num_kv_heads = 2, .group = 4};
    struct batch batch = {0};
    struct attention_plan plan;
    add(&batch, 100, 4);
    add(&batch, 100, 5);
    add(&batch, 1, 1);
    add(&batch, 100, 33);
    check(&batch, &shape, 8, &plan);
    int counts[4] = {0};
    for (int32_t i = 0; i < plan.num_items; i++) {
        const struct attention_item *item = &plan.items[i];
        counts[item->sequence]++;
        bool narrow = item->sequence == 0 || item->sequence == 2;
        assert_int_equal(item->tile_rows, narrow ? ATTENTION_NARROW_ROWS : ATTENTION_WIDE_ROWS);
        if (item->sequence == 3 && item->first_row == 0)
            assert_int_equal(item->kv_end, 100 - 33 + 16);
    }
    const int expected[] = {2, 2, 2, 6};
    assert_memory_equal(counts, expected, sizeof(expected));
    attention_plan_finish(&plan);
}

/* A decode keeps as many blocks busy as its range has tiles, a chunk of a prompt fewer; padding,
 * which no sequence of the step is, has no item. */
static void test_few_items(void **state) {
    const struct attention_plan_shape shape = {.num_kv_heads = 1, .group = 4};
    struct attention_plan plan;
    for (int32_t num_tokens = 1; num_tokens <= 4; num_tokens += 3) {
        struct batch batch = {0};
        add(&batch, 1024, num_tokens);
        batch.step.num_padding = 7;
        check(&batch, &shape, 64, &plan);
        assert_int_equal(plan.num_items, num_tokens == 1 ? 1024 / ATTENTION_MIN_DECODE_PIECE
                                                         : 1024 / ATTENTION_MIN_PIECE);
        attention_plan_finish(&plan);
    }
}

static void test_window_cuts(void **state) {
    const struct attention_plan_shape shape = {.num_kv_heads = 1, .group = 1, .window = 100};
    struct batch batch = {0};
    struct attention_plan plan;
    add(&batch, 1000, 1);
    add(&batch, 1000, 70);
    check(&batch, &shape, 64, &plan);
    for (int32_t i = 0; i < plan.num_items; i++) {
        const struct attention_item *item = &plan.items[i];
        if (item->sequence == 0 && item->part == item->first_part)
            assert_int_equal(item->kv_begin, 896); /* 900 is the first token seen */
    }
    attention_plan_finish(&plan);
}

/* One long decode is shared by all blocks; many short ones are not split. */
static void test_split(void **state) {
    const struct attention_plan_shape shape = {.num_kv_heads = 2, .group = 4};
    struct attention_plan plan;
    struct batch lone = {0}, many = {0};
    add(&lone, 10000, 1);
    check(&lone, &shape, 20, &plan);
    assert_int_equal(plan.num_parts, 20); /* ceil(157 tiles / 16) of each head */
    attention_plan_finish(&plan);
    for (int i = 0; i < MAX_SEQS; i++)
        add(&many, 256, 1);
    check(&many, &shape, 20, &plan);
    assert_int_equal(plan.num_parts, 0);
    attention_plan_finish(&plan);
}

static void test_batch_invariant(void **state) {
    const struct attention_plan_shape shape = {
        .num_kv_heads = 2, .group = 4, .batch_invariant = true};
    struct attention_plan plan;
    struct batch batch = {0};
    add(&batch, 10000, 1);
    add(&batch, 50, 1);
    check(&batch, &shape, 20, &plan);
    assert_int_equal(plan.num_parts, 0);
    for (int32_t i = 0; i < plan.num_items; i++)
        assert_int_equal(plan.items[i].tile_rows, ATTENTION_WIDE_ROWS);
    attention_plan_finish(&plan);
}

static void test_random_steps(void **state) {
    uint64_t seed = 7;
    for (int round = 0; round < 60; round++) {
        struct attention_plan_shape shape = {.num_kv_heads = random_in(&seed, 1, 4),
                                             .group = random_in(&seed, 1, 9),
                                             .window =
                                                 round % 3 == 0 ? random_in(&seed, 1, 600) : 0};
        struct batch batch = {0};
        for (int s = random_in(&seed, 1, 12); s > 0; s--) {
            int32_t context = random_in(&seed, 1, round % 2 ? 3000 : 200);
            int32_t most = random_in(&seed, 0, 1) ? 1 : context < 90 ? context : 90;
            add(&batch, context, random_in(&seed, 1, most));
        }
        struct attention_plan plan;
        check(&batch, &shape, random_in(&seed, 1, 40), &plan);
        attention_plan_finish(&plan);
    }
}

/* The slots are as many as the proof says, and the worst case comes near: ranges just above the
 * limit, which become two pieces each. */
static void test_worst_split(void **state) {
    const struct attention_plan_shape shape = {.num_kv_heads = 1, .group = 1};
    struct attention_plan plan;
    struct batch batch = {0};
    for (int i = 0; i < 20; i++)
        add(&batch, 257, 1);
    check(&batch, &shape, 25, &plan);
    assert_int_equal(plan.num_parts, 40);
    attention_plan_finish(&plan);
}

static void test_refusals(void **state) {
    struct attention_plan plan = {0};
    struct error err = {0};
    struct backend_config none = config_of(8, 0), fewer = config_of(4, 8),
                          huge = config_of(INT32_MAX, 1);
    assert_int_equal(attention_plan_init(&plan, &none, 8, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_int_equal(attention_plan_init(&plan, &fewer, 8, &err), -1);
    assert_int_equal(attention_plan_init(&plan, &huge, 8, &err), -1);
    assert_null(plan.items);
    attention_plan_finish(&plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tile_shapes), cmocka_unit_test(test_window_cuts),
        cmocka_unit_test(test_split),       cmocka_unit_test(test_batch_invariant),
        cmocka_unit_test(test_few_items),   cmocka_unit_test(test_random_steps),
        cmocka_unit_test(test_worst_split), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
