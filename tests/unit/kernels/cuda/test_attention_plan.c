/* The plan of a step's attention: every row over all it sees exactly once, partial results in rows
 * of their own, no piece too short, blocks evenly loaded; prefixes that several sequences share are
 * read once for many of them, where that pays. */
#include "kernels/cuda/attention/attention_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_SEQS 64
#define MAX_TOKENS 4096
#define BLOCK_SIZE 16
#define MAX_BLOCKS 640

/* Constants: Knuth's MMIX. */
static int32_t random_in(uint64_t *seed, int32_t low, int32_t high) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return low + (int32_t)((*seed >> 33) % (uint64_t)(high - low + 1));
}

struct batch {
    struct step_inputs step;
    int32_t query_start[MAX_SEQS + 1];
    int32_t context_lens[MAX_SEQS];
    int32_t tables[MAX_SEQS * MAX_BLOCKS];
};

/* With blocks of its own. */
static void add(struct batch *batch, int32_t context, int32_t num_tokens) {
    int32_t s = batch->step.num_seqs++;
    batch->step.query_start = batch->query_start;
    batch->step.context_lens = batch->context_lens;
    batch->step.block_tables = batch->tables;
    batch->step.max_blocks_per_seq = MAX_BLOCKS;
    batch->query_start[s + 1] = batch->query_start[s] + num_tokens;
    batch->context_lens[s] = context;
    batch->step.num_tokens = batch->query_start[s + 1];
    for (int32_t i = 0; i < MAX_BLOCKS; i++)
        batch->tables[s * MAX_BLOCKS + i] = i * BLOCK_SIZE < context ? s * MAX_BLOCKS + i : -1;
}

/* The sequence begins with so many tokens of another one's, in its blocks. */
static void share(struct batch *batch, int32_t sequence, int32_t other, int32_t num_tokens) {
    memcpy(batch->tables + sequence * MAX_BLOCKS, batch->tables + other * MAX_BLOCKS,
           (size_t)(num_tokens / BLOCK_SIZE) * sizeof(*batch->tables));
}

static struct backend_config config_of(int32_t num_q_heads, int32_t num_kv_heads, int32_t num_seqs,
                                       int32_t num_tokens) {
    return (struct backend_config){.limits.max_num_batched_tokens = num_tokens,
                                   .limits.max_num_seqs = num_seqs,
                                   .num_q_heads = num_q_heads,
                                   .num_kv_heads = num_kv_heads};
}

static bool is_decode(const struct batch *batch, int32_t s) {
    return batch->query_start[s + 1] - batch->query_start[s] == 1;
}

static int32_t sequence_of(const struct batch *batch, int32_t token) {
    int32_t s = 0;
    while (token >= batch->query_start[s + 1])
        s++;
    return s;
}

/* Token `t` of the context is seen by row `row` of the sequence. */
static bool is_seen(const struct batch *batch, const struct attention_shape *shape, int32_t s,
                    int32_t row, int32_t t) {
    int32_t num_tokens = batch->query_start[s + 1] - batch->query_start[s];
    int32_t position = batch->context_lens[s] - num_tokens + row / shape->group;
    return t <= position && (shape->window == 0 || t > position - shape->window);
}

static bool has_several_runs(const struct attention_item *item) {
    return item->num_rows > item->run_rows;
}

static int32_t run_index(const struct attention_item *item, const struct attention_shape *shape,
                         int32_t i) {
    return item->first_run + i * shape->num_kv_heads;
}

/* A run of the item: whose rows it has, and that they find there what is theirs. Returns the
 * sequence. */
static int32_t check_run(const struct attention_plan *plan, const struct batch *batch,
                         const struct attention_shape *shape, const struct attention_item *item,
                         int32_t i, int32_t *out_row) {
    const struct attention_run *run = &plan->runs[run_index(item, shape, i)];
    int32_t s = sequence_of(batch, run->first_row / shape->group);
    int32_t row = run->first_row - batch->query_start[s] * shape->group;
    int32_t num_tokens = batch->query_start[s + 1] - batch->query_start[s];
    int32_t position = item->first_row / shape->group;
    assert_true(row + item->run_rows <= num_tokens * shape->group);
    if (has_several_runs(item)) {
        assert_true(is_decode(batch, s) && item->run_rows == shape->group && row == 0);
        assert_true(position >= item->kv_end - 1 && item->kv_end < batch->context_lens[s]);
        assert_true(shape->window == 0 || position - shape->window < item->kv_begin);
        assert_int_equal(item->first_row % shape->group, 0);
        for (int32_t t = item->kv_begin / BLOCK_SIZE; t * BLOCK_SIZE < item->kv_end; t++)
            assert_int_equal(batch->tables[s * MAX_BLOCKS + t],
                             batch->tables[item->sequence * MAX_BLOCKS + t]);
    } else {
        assert_int_equal(item->sequence, s);
        assert_int_equal(item->first_row,
                         (batch->context_lens[s] - num_tokens) * shape->group + row);
    }
    *out_row = row;
    return s;
}

static int32_t tile_rows_of(const struct attention_item *item) {
    return item->tile == ATTENTION_WIDE ? ATTENTION_WIDE_ROWS : ATTENTION_NARROW_ROWS;
}

static int32_t num_kv_tiles(const struct batch *batch, int32_t s) {
    return (batch->context_lens[s] + 63) / 64;
}

static int *count_visits(const struct attention_plan *plan, const struct batch *batch,
                         const struct attention_shape *shape, int32_t s, int32_t head) {
    int32_t num_rows = (batch->query_start[s + 1] - batch->query_start[s]) * shape->group;
    int32_t num_tiles = num_kv_tiles(batch, s);
    int *visits = calloc((size_t)(num_rows * num_tiles), sizeof(*visits));
    assert_non_null(visits);
    for (int32_t i = 0; i < plan->num_items; i++) {
        const struct attention_item *item = &plan->items[i];
        if (item->kv_head != head)
            continue;
        assert_int_equal(item->kv_begin % ATTENTION_KV_TILE, 0);
        assert_true(item->kv_begin < item->kv_end);
        assert_true(item->num_rows <= tile_rows_of(item) && item->num_rows % item->run_rows == 0);
        for (int32_t r = 0, row; r < item->num_rows / item->run_rows; r++) {
            if (check_run(plan, batch, shape, item, r, &row) != s)
                continue;
            assert_true(item->kv_end <= batch->context_lens[s]);
            for (int32_t j = row; j < row + item->run_rows; j++)
                for (int32_t t = item->kv_begin; t < item->kv_end; t += 64)
                    visits[j * num_tiles + t / 64]++;
        }
    }
    return visits;
}

/* Each tile of 64 tokens is visited once for each row of one sequence and head that sees it. */
static void check_rows(const struct attention_plan *plan, const struct batch *batch,
                       const struct attention_shape *shape, int32_t s, int32_t head) {
    int32_t num_rows = (batch->query_start[s + 1] - batch->query_start[s]) * shape->group;
    int *visits = count_visits(plan, batch, shape, s, head);
    for (int32_t r = 0; r < num_rows; r++)
        for (int32_t t = 0; t < batch->context_lens[s]; t++) {
            int count = visits[r * num_kv_tiles(batch, s) + t / 64];
            assert_in_range(count, is_seen(batch, shape, s, r, t) ? 1 : 0, 1);
        }
    free(visits);
}

/* The parts of a run are all there, each once, in the order of their ranges; a run that has none is
 * in one item. */
static void check_parts_of(const struct attention_plan *plan, const struct attention_shape *shape,
                           int32_t run) {
    int32_t num_parts = plan->runs[run].num_parts, num_found = 0;
    int32_t *ends = calloc((size_t)num_parts + 1, sizeof(*ends));
    int32_t *begins = calloc((size_t)num_parts + 1, sizeof(*begins));
    assert_true(ends != NULL && begins != NULL && num_parts != 1);
    for (int32_t i = 0; i < plan->num_items; i++) {
        const struct attention_item *item = &plan->items[i];
        int32_t after = run - item->first_run;
        if (after < 0 || after % shape->num_kv_heads != 0 ||
            after / shape->num_kv_heads >= item->num_rows / item->run_rows)
            continue;
        num_found++;
        assert_in_range(item->part, 0, num_parts == 0 ? 0 : num_parts - 1);
        assert_int_equal(ends[item->part], 0);
        begins[item->part] = item->kv_begin;
        ends[item->part] = item->kv_end;
    }
    assert_int_equal(num_found, num_parts == 0 ? 1 : num_parts);
    for (int32_t p = 1; p < num_parts; p++)
        assert_int_equal(begins[p], ends[p - 1]);
    free(begins);
    free(ends);
}

/* No two parts have the same row of partial results. */
static void check_part_rows(const struct attention_plan *plan,
                            const struct attention_shape *shape) {
    bool *taken = calloc((size_t)plan->num_part_rows + 1, sizeof(*taken));
    assert_non_null(taken);
    for (int32_t i = 0; i < plan->num_items; i++) {
        const struct attention_item *item = &plan->items[i];
        for (int32_t r = 0; r < item->num_rows; r++) {
            const struct attention_run *run =
                &plan->runs[run_index(item, shape, r / item->run_rows)];
            int32_t row = run->first_part_row + item->part * item->run_rows + r % item->run_rows;
            if (run->num_parts == 0)
                continue;
            assert_in_range(row, 0, plan->num_part_rows - 1);
            assert_false(taken[row]);
            taken[row] = true;
        }
    }
    assert_true(plan->num_part_rows <= plan->max_part_rows);
    free(taken);
}

static void check_pieces(const struct attention_plan *plan, const struct batch *batch) {
    for (int32_t i = 0; i < plan->num_items; i++) {
        const struct attention_item *item = &plan->items[i];
        int32_t least = is_decode(batch, item->sequence) ? 1 : ATTENTION_MIN_PIECE / 2;
        if (plan->runs[item->first_run].num_parts > 0)
            assert_true(item->kv_end - item->kv_begin >= least);
    }
}

static int32_t cost_of(const struct attention_item *item) {
    return (item->kv_end - item->kv_begin + 63) / 64 + 1;
}

/* Of the blocks of one grid, which have items with its kind of tile alone. Longest first to the
 * least loaded: no block has more than the mean and one item above it. */
static void check_balance(const struct attention_plan *plan, enum attention_tile tile) {
    const int32_t *starts = plan->block_items + attention_plan_first_start(plan, tile);
    const int32_t num_blocks = plan->num_blocks[tile];
    int64_t total = 0, most = 0;
    int32_t longest = 0;
    for (int32_t b = 0; b < num_blocks; b++) {
        int64_t load = 0;
        assert_true(starts[b] <= starts[b + 1]);
        for (int32_t i = starts[b]; i < starts[b + 1]; i++) {
            assert_int_equal(plan->items[i].tile, tile);
            int32_t cost = cost_of(&plan->items[i]);
            load += cost;
            longest = cost > longest ? cost : longest;
        }
        total += load;
        most = load > most ? load : most;
    }
    assert_true(most <= total / num_blocks + longest);
}

/* The grids have all items, the first with narrow tiles. */
static void check_grids(const struct attention_plan *plan) {
    const int32_t *wide = plan->block_items + attention_plan_first_start(plan, ATTENTION_WIDE);
    assert_int_equal(plan->block_items[0], 0);
    assert_int_equal(wide[-1], wide[0]);
    assert_int_equal(wide[plan->num_blocks[ATTENTION_WIDE]], plan->num_items);
    check_balance(plan, ATTENTION_NARROW);
    check_balance(plan, ATTENTION_WIDE);
}

/* Made for no more than this step, and in room for no more. */
static void check(const struct batch *batch, const struct attention_shape *given,
                  int32_t num_blocks, struct attention_plan *plan) {
    struct attention_shape shape = *given;
    struct backend_config config = config_of(shape.group * shape.num_kv_heads, shape.num_kv_heads,
                                             batch->step.num_seqs, batch->step.num_tokens);
    const int32_t grids[] = {num_blocks, num_blocks};
    shape.block_size = BLOCK_SIZE;
    assert_int_equal(attention_plan_init(plan, &config, grids, NULL), 0);
    attention_plan_make(plan, &batch->step, &shape);
    assert_true(plan->num_items <=
                attention_plan_max_items(plan, batch->step.num_tokens, batch->step.num_seqs));
    assert_true(plan->num_runs <=
                attention_plan_max_runs(plan, batch->step.num_tokens, batch->step.num_seqs));
    for (int32_t s = 0; s < batch->step.num_seqs; s++)
        for (int32_t head = 0; head < shape.num_kv_heads; head++)
            check_rows(plan, batch, &shape, s, head);
    for (int32_t run = 0; run < plan->num_runs; run++)
        check_parts_of(plan, &shape, run);
    check_part_rows(plan, &shape);
    check_pieces(plan, batch);
    check_grids(plan);
}

/* Tokens of K and V that the items read. */
static int64_t count_read(const struct attention_plan *plan) {
    int64_t num_tokens = 0;
    for (int32_t i = 0; i < plan->num_items; i++)
        num_tokens += plan->items[i].kv_end - plan->items[i].kv_begin;
    return num_tokens;
}

/* Parts that split tiles leave, in rows of `group`. */
static int32_t count_parts(const struct attention_plan *plan) {
    int32_t num_parts = 0;
    for (int32_t i = 0; i < plan->num_runs; i++)
        num_parts += plan->runs[i].num_parts;
    return num_parts;
}

static void test_tile_shapes(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 2, .group = 4};
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
        assert_int_equal(item->tile, narrow ? ATTENTION_NARROW : ATTENTION_WIDE);
        if (item->sequence == 3 && item->first_row == (100 - 33) * 4)
            assert_int_equal(item->kv_end, 100 - 33 + 16);
    }
    const int expected[] = {2, 2, 2, 6};
    assert_memory_equal(counts, expected, sizeof(expected));
    attention_plan_finish(&plan);
}

/* A decode keeps as many blocks busy as its range has tiles, a chunk of a prompt fewer; padding,
 * which no sequence of the step is, has no item. */
static void test_few_items(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 1, .group = 4};
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
    const struct attention_shape shape = {.num_kv_heads = 1, .group = 1, .window = 100};
    struct batch batch = {0};
    struct attention_plan plan;
    add(&batch, 1000, 1);
    add(&batch, 1000, 70);
    check(&batch, &shape, 64, &plan);
    for (int32_t i = 0; i < plan.num_items; i++) {
        const struct attention_item *item = &plan.items[i];
        if (item->sequence == 0 && item->part == 0)
            assert_int_equal(item->kv_begin, 896); /* 900 is the first token seen */
    }
    attention_plan_finish(&plan);
}

/* One long decode is shared by all blocks; many short ones are not split. */
static void test_split(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 2, .group = 4};
    struct attention_plan plan;
    struct batch lone = {0}, many = {0};
    add(&lone, 10000, 1);
    check(&lone, &shape, 20, &plan);
    assert_int_equal(count_parts(&plan), 20); /* ceil(157 tiles / 16) of each head */
    attention_plan_finish(&plan);
    for (int i = 0; i < MAX_SEQS; i++)
        add(&many, 256, 1);
    check(&many, &shape, 20, &plan);
    assert_int_equal(plan.num_part_rows, 0);
    attention_plan_finish(&plan);
}

static void test_batch_invariant(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 2, .group = 4, .batch_invariant = true};
    struct attention_plan plan;
    struct batch batch = {0};
    add(&batch, 10000, 1);
    add(&batch, 50, 1);
    check(&batch, &shape, 20, &plan);
    assert_int_equal(plan.num_part_rows, 0);
    for (int32_t i = 0; i < plan.num_items; i++)
        assert_int_equal(plan.items[i].tile, ATTENTION_WIDE);
    attention_plan_finish(&plan);
}

static void test_random_steps(void **state) {
    uint64_t seed = 7;
    for (int round = 0; round < 60; round++) {
        struct attention_shape shape = {.num_kv_heads = random_in(&seed, 1, 4),
                                        .group = random_in(&seed, 1, 9),
                                        .window = round % 3 == 0 ? random_in(&seed, 1, 600) : 0};
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

/* The parts are as many as the proof says, and the worst case comes near: ranges just above the
 * limit, which become two pieces each. */
static void test_worst_split(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 1, .group = 1};
    struct attention_plan plan;
    struct batch batch = {0};
    for (int i = 0; i < 20; i++)
        add(&batch, 257, 1);
    check(&batch, &shape, 25, &plan);
    assert_int_equal(count_parts(&plan), 40);
    attention_plan_finish(&plan);
}

static void add_decodes(struct batch *batch, int32_t num, int32_t context) {
    for (int32_t i = 0; i < num; i++)
        add(batch, context, 1);
}

/* Every sequence begins with as many tokens of the first of its set; sets take turns. */
static void share_in_sets(struct batch *batch, int32_t num_sets, int32_t num_tokens) {
    for (int32_t s = num_sets; s < batch->step.num_seqs; s++)
        share(batch, s, s % num_sets, num_tokens);
}

/* 64 sequences with 4096 tokens in common and 128 of their own: 4 wide tiles read the prefix
 * instead of 64 sequences, in any order of theirs. */
static void test_prefix_of_many(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 8, .group = 4};
    struct attention_plan plan;
    struct batch apart = {0}, alike = {0};
    add_decodes(&apart, 64, 4096 + 128);
    check(&apart, &shape, 264, &plan);
    assert_int_equal(count_read(&plan), 8 * 64 * (4096 + 128));
    attention_plan_finish(&plan);
    add_decodes(&alike, 64, 4096 + 128);
    share_in_sets(&alike, 1, 4096);
    check(&alike, &shape, 264, &plan);
    assert_int_equal(count_read(&plan), 8 * (4 * 4096 + 64 * 128));
    attention_plan_finish(&plan);
}

/* Two sets that take turns, of 5 sequences and 4, the last one alone with its rows in narrow tiles;
 * a prompt that begins like the first set reads for itself. */
static void test_prefixes_of_sets(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 1, .group = 4};
    struct attention_plan plan;
    struct batch batch = {0};
    add_decodes(&batch, 9, 1100);
    share_in_sets(&batch, 2, 1024);
    add(&batch, 1100, 20);
    share(&batch, 9, 0, 1024);
    check(&batch, &shape, 4, &plan);
    assert_int_equal(count_read(&plan), 2 * 1024 + 9 * (1100 - 1024) + 1096 + 1100);
    for (int32_t i = 0; i < plan.num_items; i++)
        if (has_several_runs(&plan.items[i]))
            assert_int_equal(plan.items[i].tile,
                             plan.items[i].num_rows == 20 ? ATTENTION_WIDE : ATTENTION_NARROW);
    attention_plan_finish(&plan);
}

/* One prefix of all 32, behind it one of each 8 of them. */
static void test_prefixes_nested(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 2, .group = 2};
    struct attention_plan plan;
    struct batch batch = {0};
    add_decodes(&batch, 32, 2000);
    share_in_sets(&batch, 4, 1536);
    share_in_sets(&batch, 1, 1024);
    for (int32_t s = 4; s < 32; s++)
        share(&batch, s, s % 4, 1536);
    check(&batch, &shape, 16, &plan);
    assert_int_equal(count_read(&plan), 2 * (1024 + 4 * 512 + 32 * (2000 - 1536)));
    attention_plan_finish(&plan);
}

/* Whole tiles of whole blocks, and never a sequence's last token. */
static void test_prefix_ends(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 1, .group = 1};
    struct attention_plan plan;
    for (int32_t length = 1020; length <= 1110; length += 4) {
        struct batch batch = {0};
        add(&batch, length, 1);
        add(&batch, 1200, 1);
        share(&batch, 1, 0, 1088);
        check(&batch, &shape, 2, &plan);
        int32_t common = (length < 1089 ? length - 1 : 1088) / 64 * 64;
        assert_int_equal(count_read(&plan), length + 1200 - common);
        attention_plan_finish(&plan);
    }
}

/* Tiles of many rows are split less, since each piece leaves a partial result for each. */
static void test_prefix_pieces(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 1, .group = 4};
    for (int32_t num = 4; num <= 16; num += 12) {
        struct attention_plan plan;
        struct batch batch = {0};
        int32_t num_pieces = 0;
        add_decodes(&batch, num, 4096 + 64);
        share_in_sets(&batch, 1, 4096);
        check(&batch, &shape, 200, &plan);
        for (int32_t i = 0; i < plan.num_items; i++)
            num_pieces += has_several_runs(&plan.items[i]);
        assert_int_equal(num_pieces,
                         4096 / (num == 4 ? ATTENTION_MIN_DECODE_PIECE : ATTENTION_MIN_PIECE));
        attention_plan_finish(&plan);
    }
}

/* As many shared tiles as there can be: of each two sequences one, and of each four. */
static void test_most_shared_tiles(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 8, .group = 16};
    struct attention_plan plan;
    struct batch batch = {0};
    add_decodes(&batch, 64, 2500);
    share_in_sets(&batch, 32, 2048);
    for (int32_t s = 16; s < 64; s++)
        share(&batch, s, s % 16, 1024);
    check(&batch, &shape, 1, &plan);
    assert_int_equal(plan.num_items, 8 * (64 + 32 + 16));
    attention_plan_finish(&plan);
}

/* Two sets whose fourth blocks differ, whatever their numbers: of some the hashes are the same. */
static void test_blocks_of_any_number(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 1, .group = 1};
    for (int32_t number = 0; number < 300; number++) {
        struct attention_plan plan;
        struct batch batch = {0};
        add_decodes(&batch, 40, 100);
        share_in_sets(&batch, 1, 48);
        for (int32_t s = 0; s < 40; s++)
            batch.tables[s * MAX_BLOCKS + 3] = 1000000 + (s % 2 ? number : -1);
        check(&batch, &shape, 4, &plan);
        assert_int_equal(count_read(&plan), 2 * 64 + 40 * 36);
        attention_plan_finish(&plan);
    }
}

/* Nothing is shared where a window ends within the prefix, where rows are of one sequence by
 * contract, and where blocks have one tile each anyway. */
static void test_prefix_is_not_for_all(void **state) {
    struct attention_shape shapes[] = {{.num_kv_heads = 1, .group = 4, .window = 1099},
                                       {.num_kv_heads = 1, .group = 4, .batch_invariant = true},
                                       {.num_kv_heads = 1, .group = 22},
                                       {.num_kv_heads = 1, .group = 4},
                                       {.num_kv_heads = 1, .group = 4, .window = 1100}};
    static const int32_t num_blocks[] = {4, 4, 4, 1000, 4};
    for (int i = 0; i < 5; i++) {
        struct attention_plan plan;
        struct batch batch = {0};
        add_decodes(&batch, 8, 1100);
        share_in_sets(&batch, 1, 1024);
        check(&batch, &shapes[i], num_blocks[i], &plan);
        bool is_shared = count_read(&plan) < 8 * 1100 - 8 * 64;
        assert_int_equal(is_shared, i == 4);
        attention_plan_finish(&plan);
    }
}

/* One plan serves the layers of all groups: what they share in the blocks of each is read once. The
 * tables of the second group are those after the first's. */
static void test_prefix_of_groups(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 1, .group = 4};
    struct attention_plan plan;
    struct batch batch = {0};
    add_decodes(&batch, 16, 1100);
    for (int32_t s = 1; s < 8; s++) {
        share(&batch, s, 0, 1024);
        share(&batch, 8 + s, 8, 512);
    }
    batch.step.num_seqs = batch.step.num_tokens = 8;
    batch.step.num_groups = 2;
    check(&batch, &shape, 4, &plan);
    assert_int_equal(count_read(&plan), attention_prefix_tiles(8, 4) * 512 + 8 * (1100 - 512));
    attention_plan_finish(&plan);
}

/* What is read less is more than what the prefix costs. */
static void test_prefix_pays(void **state) {
    assert_int_equal(attention_prefix_tiles(4, 4), 1);
    assert_int_equal(attention_prefix_tiles(16, 4), 1);
    assert_int_equal(attention_prefix_tiles(17, 4), 2);
    assert_int_equal(attention_prefix_tiles(64, 3), 4); /* 21 each at most */
    /* Two sequences: one reader less; a tile and 16 rows of partial results. */
    assert_false(attention_prefix_pays(64 + 16 * 4, 2, 2, 4, true));
    assert_true(attention_prefix_pays(64 + 16 * 4 + 1, 2, 2, 4, true));
    assert_true(attention_prefix_pays(64 + 8 * 4 + 1, 2, 2, 4, false));
    /* 64 in 8 sets: 4 tiles instead of 8 read what all have in common. */
    assert_false(attention_prefix_pays(512, 64, 8, 4, true));
    assert_true(attention_prefix_pays(4 * 64 + 512, 64, 8, 4, true));
    assert_true(attention_prefix_pays(64, 64, 64, 4, true));
    /* As many readers as before. */
    assert_false(attention_prefix_pays(1 << 20, 64, 4, 4, true));
    assert_false(attention_prefix_pays(0, 64, 64, 4, true));
}

/* A prefix that does not pay leaves the plan as it is without. */
static void test_prefix_that_does_not_pay(void **state) {
    const struct attention_shape shape = {.num_kv_heads = 2, .group = 4};
    struct attention_plan apart_plan, plan;
    struct batch apart = {0}, alike = {0};
    add_decodes(&apart, 8, 300);
    add_decodes(&alike, 8, 300);
    share_in_sets(&alike, 4, 128);
    check(&apart, &shape, 4, &apart_plan);
    check(&alike, &shape, 4, &plan);
    assert_int_equal(plan.num_items, apart_plan.num_items);
    assert_memory_equal(plan.items, apart_plan.items, (size_t)plan.num_items * sizeof(*plan.items));
    attention_plan_finish(&plan);
    attention_plan_finish(&apart_plan);
}

/* Trees of prefixes: each sequence begins like one before it, as far as it likes. */
static void test_random_prefixes(void **state) {
    uint64_t seed = 11;
    int32_t num_shared = 0;
    for (int round = 0; round < 80; round++) {
        struct attention_shape shape = {.num_kv_heads = random_in(&seed, 1, 3),
                                        .group = random_in(&seed, 1, 9),
                                        .window = round % 4 == 0 ? random_in(&seed, 1, 2000) : 0};
        struct batch batch = {0};
        for (int s = 0, num = random_in(&seed, 2, MAX_SEQS - 1); s < num; s++) {
            add(&batch, random_in(&seed, 1, 1200), 1);
            int32_t other = random_in(&seed, 0, s), length = batch.context_lens[other];
            length = length < batch.context_lens[s] ? length : batch.context_lens[s];
            share(&batch, s, other, random_in(&seed, 0, 3) ? length - 1 : length / 2);
        }
        if (round % 2)
            add(&batch, 400, 33);
        struct attention_plan plan;
        check(&batch, &shape, random_in(&seed, 1, 60), &plan);
        for (int32_t i = 0; i < plan.num_items; i++)
            num_shared += has_several_runs(&plan.items[i]);
        attention_plan_finish(&plan);
    }
    assert_true(num_shared > 300);
}

static void test_refusals(void **state) {
    struct attention_plan plan = {0};
    struct error err = {0};
    struct backend_config none = config_of(8, 0, MAX_SEQS, MAX_TOKENS),
                          fewer = config_of(4, 8, MAX_SEQS, MAX_TOKENS),
                          huge = config_of(INT32_MAX, 1, MAX_SEQS, MAX_TOKENS);
    const int32_t grids[] = {8, 8};
    assert_int_equal(attention_plan_init(&plan, &none, grids, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_int_equal(attention_plan_init(&plan, &fewer, grids, &err), -1);
    assert_int_equal(attention_plan_init(&plan, &huge, grids, &err), -1);
    assert_null(plan.items);
    attention_plan_finish(&plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tile_shapes),
        cmocka_unit_test(test_window_cuts),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_batch_invariant),
        cmocka_unit_test(test_few_items),
        cmocka_unit_test(test_random_steps),
        cmocka_unit_test(test_worst_split),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_prefix_of_many),
        cmocka_unit_test(test_prefix_of_groups),
        cmocka_unit_test(test_prefixes_of_sets),
        cmocka_unit_test(test_prefixes_nested),
        cmocka_unit_test(test_prefix_ends),
        cmocka_unit_test(test_prefix_is_not_for_all),
        cmocka_unit_test(test_prefix_pays),
        cmocka_unit_test(test_prefix_pieces),
        cmocka_unit_test(test_most_shared_tiles),
        cmocka_unit_test(test_blocks_of_any_number),
        cmocka_unit_test(test_prefix_that_does_not_pay),
        cmocka_unit_test(test_random_prefixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
