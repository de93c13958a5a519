/* Costs are counted in KV tiles, plus one per item for its queries and results.
 *
 * The limit L of a piece is at least the sum of all ranges, in tiles, over the blocks, so one piece
 * is never more than a fair share. A range of n > L tiles becomes ceil(n / L) < n / L + 1 < 2 n / L
 * pieces; over all split ranges these are fewer than 2 * (sum of n) / L <= 2 * num_blocks: the
 * bound of the slots for partial results, and of the items that splitting adds.
 *
 * A row must see a token of every piece. One of a decode sees all of its range. Of several tokens
 * the rows differ by less than a tile in where their ranges begin and end: pieces differ by a tile
 * at most and, as n >= L + 1 >= 5, hold floor(n / ceil(n / L)) >= 2 whole tiles; the last one, which
 * may end within a tile, is among the longest, of 3 or more. */
#include "kernels/cuda/attention_plan.h"

#include "config/base/check.h"
#include "config/base/numbers.h"

#include <stdlib.h>
#include <string.h>

/* Items that cost more, of a million tokens, are dealt as if they cost this much. */
#define MAX_COST 16384
#define NO_BLOCK (-1)

static int64_t div_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* A sequence of n tokens has at most n * group / ATTENTION_WIDE_ROWS + 1 tiles per KV head. */
static int64_t max_items_of(int32_t num_q_heads, int32_t num_kv_heads, int32_t num_blocks,
                            int32_t num_tokens, int32_t num_seqs) {
    return (int64_t)num_tokens * num_q_heads / ATTENTION_WIDE_ROWS +
           (int64_t)num_seqs * num_kv_heads + attention_plan_max_parts(num_blocks);
}

int32_t attention_plan_max_items(const struct attention_plan *plan, int32_t num_tokens,
                                 int32_t num_seqs) {
    return (int32_t)max_items_of(plan->num_q_heads, plan->num_kv_heads, plan->num_blocks,
                                 num_tokens, num_seqs);
}

int attention_plan_init(struct attention_plan *plan, const struct backend_config *config,
                        int32_t num_blocks, struct error *err) {
    int64_t max_items =
        max_items_of(config->num_q_heads, config->num_kv_heads, num_blocks,
                     config->limits.max_num_batched_tokens, config->limits.max_num_seqs);
    if (config->limits.max_num_batched_tokens <= 0 || config->limits.max_num_seqs <= 0 ||
        config->num_kv_heads <= 0 || config->num_kv_heads > INT16_MAX ||
        config->num_q_heads < config->num_kv_heads ||
        max_items > INT32_MAX / (int64_t)sizeof(struct attention_item))
        return error_set(err, ERROR_CONFIG,
                         "attention of steps of %d tokens and %d sequences with %d query and %d KV "
                         "heads is too large to plan, or no attention at all",
                         config->limits.max_num_batched_tokens, config->limits.max_num_seqs,
                         config->num_q_heads, config->num_kv_heads);
    size_t n = (size_t)max_items;
    *plan = (struct attention_plan){.num_blocks = num_blocks,
                                    .max_items = (int32_t)n,
                                    .num_q_heads = config->num_q_heads,
                                    .num_kv_heads = config->num_kv_heads};
    plan->items = calloc(n, sizeof(*plan->items));
    plan->block_items = calloc((size_t)num_blocks + 1, sizeof(*plan->block_items));
    plan->found = calloc(n, sizeof(*plan->found));
    plan->order = calloc(n, sizeof(*plan->order));
    plan->block_of = calloc(n, sizeof(*plan->block_of));
    plan->costs = calloc(n, sizeof(*plan->costs));
    plan->next_block = calloc((size_t)num_blocks, sizeof(*plan->next_block));
    plan->by_cost = calloc(MAX_COST + 1, sizeof(*plan->by_cost));
    if (plan->items && plan->block_items && plan->found && plan->order && plan->block_of &&
        plan->costs && plan->next_block && plan->by_cost)
        return 0;
    attention_plan_finish(plan);
    return error_set(err, ERROR_MEMORY, "out of memory for an attention plan of %zu items", n);
}

void attention_plan_finish(struct attention_plan *plan) {
    free(plan->items);
    free(plan->block_items);
    free(plan->found);
    free(plan->order);
    free(plan->block_of);
    free(plan->costs);
    free(plan->next_block);
    free(plan->by_cost);
    *plan = (struct attention_plan){0};
}

static int32_t num_tiles_of(const struct attention_item *item) {
    return (int32_t)div_up(item->kv_end - item->kv_begin, ATTENTION_KV_TILE);
}

/* The tiles of one sequence, each over the whole range its rows see. */
static void find_tiles(struct attention_plan *plan, const struct step_inputs *step,
                       const struct attention_plan_shape *shape, int32_t sequence) {
    int32_t num_tokens = step->query_start[sequence + 1] - step->query_start[sequence];
    int32_t num_rows = num_tokens * shape->group;
    int32_t first_position = step->context_lens[sequence] - num_tokens;
    bool wide = shape->batch_invariant || num_rows > ATTENTION_NARROW_ROWS;
    int32_t tile_rows = wide ? ATTENTION_WIDE_ROWS : ATTENTION_NARROW_ROWS;
    for (int32_t head = 0; head < shape->num_kv_heads; head++)
        for (int32_t row = 0; row < num_rows; row += tile_rows) {
            int32_t last_row = min_int32(row + tile_rows, num_rows) - 1;
            int32_t begin = first_position + row / shape->group - (shape->window - 1);
            CHECK(plan->num_items < plan->max_items);
            plan->found[plan->num_items++] = (struct attention_item){
                .sequence = sequence,
                .kv_head = (int16_t)head,
                .tile_rows = (int16_t)tile_rows,
                .first_row = row,
                .kv_begin = shape->window > 0 && begin > 0
                                ? begin / ATTENTION_KV_TILE * ATTENTION_KV_TILE
                                : 0,
                .kv_end = first_position + last_row / shape->group + 1,
                .num_parts = 1};
        }
}

/* In tiles: what one block has to do, if all have the same. */
static int32_t fair_share(const struct attention_plan *plan) {
    int64_t total = 0;
    for (int32_t i = 0; i < plan->num_items; i++)
        total += num_tiles_of(&plan->found[i]);
    return (int32_t)div_up(total, plan->num_blocks);
}

static bool is_decode(const struct step_inputs *step, int32_t sequence) {
    return step->query_start[sequence + 1] - step->query_start[sequence] == 1;
}

static void split(struct attention_plan *plan, int32_t index, int32_t num_pieces) {
    struct attention_item *item = &plan->found[index];
    const struct attention_item whole = *item;
    int64_t num_tiles = num_tiles_of(&whole);
    for (int32_t p = 0; p < num_pieces; p++) {
        if (p > 0)
            item = &plan->found[plan->num_items++];
        *item = whole;
        item->kv_begin += (int32_t)(num_tiles * p / num_pieces) * ATTENTION_KV_TILE;
        if (p + 1 < num_pieces)
            item->kv_end =
                whole.kv_begin + (int32_t)(num_tiles * (p + 1) / num_pieces) * ATTENTION_KV_TILE;
        item->part = plan->num_parts + p;
        item->first_part = plan->num_parts;
        item->num_parts = num_pieces;
    }
    plan->num_parts += num_pieces;
}

static void split_long_ranges(struct attention_plan *plan, const struct step_inputs *step) {
    int32_t share = fair_share(plan), num_whole = plan->num_items;
    for (int32_t i = 0; i < num_whole; i++) {
        int32_t num_tiles = num_tiles_of(&plan->found[i]);
        int32_t least = is_decode(step, plan->found[i].sequence) ? ATTENTION_MIN_DECODE_PIECE
                                                                 : ATTENTION_MIN_PIECE;
        int32_t limit = max_int32(share, least / ATTENTION_KV_TILE);
        if (num_tiles <= limit)
            continue;
        int32_t num_pieces = (int32_t)div_up(num_tiles, limit);
        CHECK(plan->num_items + num_pieces - 1 <= plan->max_items);
        CHECK(plan->num_parts + num_pieces <= attention_plan_max_parts(plan->num_blocks));
        split(plan, i, num_pieces);
    }
}

/* Of each found item. Returns the largest. */
static int32_t find_costs(struct attention_plan *plan) {
    int32_t most = 0;
    for (int32_t i = 0; i < plan->num_items; i++) {
        plan->costs[i] = min_int32(num_tiles_of(&plan->found[i]) + 1, MAX_COST);
        most = plan->costs[i] > most ? plan->costs[i] : most;
    }
    return most;
}

/* Counting sort, longest first; equals stay in order. */
static void sort_by_cost(struct attention_plan *plan, int32_t most) {
    int32_t *starts = plan->by_cost;
    memset(starts, 0, ((size_t)most + 1) * sizeof(*starts));
    for (int32_t i = 0; i < plan->num_items; i++)
        starts[plan->costs[i]]++;
    int32_t start = 0;
    for (int32_t cost = most; cost >= 0; cost--) {
        int32_t count = starts[cost];
        starts[cost] = start;
        start += count;
    }
    for (int32_t i = 0; i < plan->num_items; i++)
        plan->order[starts[plan->costs[i]]++] = i;
}

/* Blocks wait in lists by their load. Loads differ by the largest cost at most, so that as many
 * lists and one, used in turns, are enough; nothing is searched or sifted for an item but the next
 * list that is not empty. */
static void assign_blocks(struct attention_plan *plan, int32_t most) {
    int32_t *first = plan->by_cost, *next = plan->next_block, at = 0;
    for (int32_t i = 0; i <= most; i++)
        first[i] = NO_BLOCK;
    for (int32_t b = 0; b < plan->num_blocks; b++)
        next[b] = b + 1 < plan->num_blocks ? b + 1 : NO_BLOCK;
    first[0] = 0;
    for (int32_t i = 0; i < plan->num_items; i++) {
        while (first[at] == NO_BLOCK)
            at = at < most ? at + 1 : 0;
        int32_t block = first[at], to = at + plan->costs[plan->order[i]];
        to -= to > most ? most + 1 : 0;
        first[at] = next[block];
        next[block] = first[to];
        first[to] = block;
        plan->block_of[i] = block;
    }
}

static void list_by_block(struct attention_plan *plan) {
    int32_t *starts = plan->block_items;
    memset(starts, 0, ((size_t)plan->num_blocks + 1) * sizeof(*starts));
    for (int32_t i = 0; i < plan->num_items; i++)
        starts[plan->block_of[i]]++;
    for (int32_t b = 0, start = 0; b <= plan->num_blocks; b++) {
        int32_t count = starts[b];
        starts[b] = start;
        start += count;
    }
    for (int32_t i = 0; i < plan->num_items; i++)
        plan->items[starts[plan->block_of[i]]++] = plan->found[plan->order[i]];
    /* Each start has become its block's end, which is the next one's start. */
    memmove(starts + 1, starts, (size_t)plan->num_blocks * sizeof(*starts));
    starts[0] = 0;
}

void attention_plan_make(struct attention_plan *plan, const struct step_inputs *step,
                         const struct attention_plan_shape *shape) {
    plan->num_items = 0;
    plan->num_parts = 0;
    for (int32_t s = 0; s < step->num_seqs; s++)
        find_tiles(plan, step, shape, s);
    if (!shape->batch_invariant)
        split_long_ranges(plan, step);
    int32_t most = find_costs(plan);
    sort_by_cost(plan, most);
    assign_blocks(plan, most);
    list_by_block(plan);
}
