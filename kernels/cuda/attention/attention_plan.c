/* Costs are counted in KV tiles, plus one per item for its queries and results.
 *
 * The limit L of a piece is at least the sum of all ranges of its kind of tile, in KV tiles, over
 * the blocks of its grid, so one piece is never more than a fair share. A range of n > L tiles
 * becomes ceil(n / L) < n / L + 1 < 2 n / L pieces; over all split ranges of a kind these are fewer
 * than 2 * (sum of n) / L <= 2 * num_blocks: the bound of the items that splitting adds.
 *
 * Partial results have a row for each of the item's in each piece of a split range, at most 2 *
 * num_blocks times the tile's rows, and without a split for each query head of a decode in each of
 * its prefixes and in its own range.
 *
 * A row must see a token of every piece. One of a decode sees all of its range. Of several tokens
 * the rows differ by less than a tile in where their ranges begin and end: pieces differ by a tile
 * at most and, as n >= L + 1 >= 5, hold floor(n / ceil(n / L)) >= 2 whole tiles; the last one,
 * which may end within a tile, is among the longest, of 3 or more. */
#include "kernels/cuda/attention/attention_plan.h"

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

/* A sequence of n tokens has at most n * group / ATTENTION_WIDE_ROWS + 1 tiles per KV head, each a
 * run. */
static int64_t max_runs_of(int32_t num_q_heads, int32_t num_kv_heads, int32_t num_tokens,
                           int32_t num_seqs) {
    return (int64_t)num_tokens * num_q_heads / ATTENTION_WIDE_ROWS +
           (int64_t)num_seqs * num_kv_heads;
}

/* A run's own range is an item, and every two sequences with a prefix in common have one more. */
static int64_t max_items_of(int32_t num_q_heads, int32_t num_kv_heads, const int32_t *num_blocks,
                            int32_t num_tokens, int32_t num_seqs) {
    return max_runs_of(num_q_heads, num_kv_heads, num_tokens, num_seqs) +
           (int64_t)num_seqs / 2 * num_kv_heads * ATTENTION_MAX_PREFIXES +
           2 * ((int64_t)num_blocks[ATTENTION_NARROW] + num_blocks[ATTENTION_WIDE]);
}

static int64_t max_part_rows_of(int32_t num_q_heads, const int32_t *num_blocks, int32_t num_seqs) {
    return 2 * (int64_t)num_blocks[ATTENTION_NARROW] * ATTENTION_NARROW_ROWS +
           2 * (int64_t)num_blocks[ATTENTION_WIDE] * ATTENTION_WIDE_ROWS +
           (ATTENTION_MAX_PREFIXES + 1) * (int64_t)num_seqs * num_q_heads;
}

int32_t attention_plan_max_items(const struct attention_plan *plan, int32_t num_tokens,
                                 int32_t num_seqs) {
    return (int32_t)max_items_of(plan->num_q_heads, plan->num_kv_heads, plan->num_blocks,
                                 num_tokens, num_seqs);
}

int32_t attention_plan_max_runs(const struct attention_plan *plan, int32_t num_tokens,
                                int32_t num_seqs) {
    return (int32_t)max_runs_of(plan->num_q_heads, plan->num_kv_heads, num_tokens, num_seqs);
}

int32_t attention_plan_first_start(const struct attention_plan *plan, enum attention_tile tile) {
    return tile == ATTENTION_NARROW ? 0 : plan->num_blocks[ATTENTION_NARROW] + 1;
}

int32_t attention_plan_num_starts(const struct attention_plan *plan) {
    return plan->num_blocks[ATTENTION_NARROW] + 1 + plan->num_blocks[ATTENTION_WIDE] + 1;
}

static bool alloc_arrays(struct attention_plan *plan) {
    size_t n = (size_t)plan->max_items;
    size_t num_blocks = (size_t)max_int32(plan->num_blocks[0], plan->num_blocks[1]);
    plan->items = calloc(n, sizeof(*plan->items));
    plan->runs = calloc((size_t)plan->max_runs, sizeof(*plan->runs));
    plan->block_items = calloc((size_t)attention_plan_num_starts(plan), sizeof(*plan->block_items));
    plan->found = calloc(n, sizeof(*plan->found));
    plan->order = calloc(n, sizeof(*plan->order));
    plan->block_of = calloc(n, sizeof(*plan->block_of));
    plan->costs = calloc(n, sizeof(*plan->costs));
    plan->next_block = calloc(num_blocks, sizeof(*plan->next_block));
    plan->by_cost = calloc(MAX_COST + 1, sizeof(*plan->by_cost));
    return plan->items && plan->runs && plan->block_items && plan->found && plan->order &&
           plan->block_of && plan->costs && plan->next_block && plan->by_cost;
}

int attention_plan_init(struct attention_plan *plan, const struct backend_config *config,
                        const int32_t num_blocks[NUM_ATTENTION_TILES], struct error *err) {
    int32_t num_q_heads = config->num_q_heads, num_kv_heads = config->num_kv_heads;
    int32_t num_tokens = config->limits.max_num_batched_tokens;
    int32_t num_seqs = config->limits.max_num_seqs;
    int64_t max_items = max_items_of(num_q_heads, num_kv_heads, num_blocks, num_tokens, num_seqs);
    int64_t max_part_rows = max_part_rows_of(num_q_heads, num_blocks, num_seqs);
    if (num_tokens <= 0 || num_seqs <= 0 || num_kv_heads <= 0 || num_kv_heads > INT16_MAX ||
        num_q_heads < num_kv_heads || max_part_rows > INT32_MAX ||
        max_items > INT32_MAX / (int64_t)sizeof(struct attention_item))
        return error_set(err, ERROR_CONFIG,
                         "attention of steps of %d tokens and %d sequences with %d query and %d KV "
                         "heads is too large to plan, or no attention at all",
                         num_tokens, num_seqs, num_q_heads, num_kv_heads);
    *plan = (struct attention_plan){
        .num_blocks = {num_blocks[ATTENTION_NARROW], num_blocks[ATTENTION_WIDE]},
        .max_items = (int32_t)max_items,
        .max_runs = (int32_t)max_runs_of(num_q_heads, num_kv_heads, num_tokens, num_seqs),
        .max_part_rows = (int32_t)max_part_rows,
        .num_q_heads = num_q_heads,
        .num_kv_heads = num_kv_heads};
    if (attention_prefixes_init(&plan->prefixes, num_seqs) == 0 && alloc_arrays(plan))
        return 0;
    attention_plan_finish(plan);
    return error_set(err, ERROR_MEMORY, "out of memory for an attention plan of %d items",
                     (int)max_items);
}

void attention_plan_finish(struct attention_plan *plan) {
    attention_prefixes_finish(&plan->prefixes);
    free(plan->items);
    free(plan->runs);
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

static struct attention_item *add_item(struct attention_plan *plan) {
    CHECK(plan->num_items < plan->max_items);
    return &plan->found[plan->num_items++];
}

static void add_run(struct attention_plan *plan, int32_t first_row) {
    CHECK(plan->num_runs < plan->max_runs);
    plan->runs[plan->num_runs++] = (struct attention_run){.first_row = first_row};
}

static enum attention_tile tile_of(int32_t num_rows) {
    return num_rows > ATTENTION_NARROW_ROWS ? ATTENTION_WIDE : ATTENTION_NARROW;
}

/* The tiles of one sequence, each a run, over the whole range its rows see but `own_begin` tokens.
 */
static void find_tiles(struct attention_plan *plan, const struct step_inputs *step,
                       const struct attention_shape *shape, int32_t sequence, int32_t own_begin) {
    const int32_t *start = step->query_start + sequence;
    int32_t num_rows = (start[1] - start[0]) * shape->group;
    int32_t first_position = step->context_lens[sequence] - (start[1] - start[0]);
    enum attention_tile tile = shape->batch_invariant ? ATTENTION_WIDE : tile_of(num_rows);
    int32_t tile_rows = tile == ATTENTION_WIDE ? ATTENTION_WIDE_ROWS : ATTENTION_NARROW_ROWS;
    for (int32_t row = 0; row < num_rows; row += tile_rows) {
        int32_t rows = min_int32(tile_rows, num_rows - row);
        int32_t begin = first_position + row / shape->group - (shape->window - 1);
        begin = shape->window > 0 ? begin / ATTENTION_KV_TILE * ATTENTION_KV_TILE : 0;
        int32_t end = first_position + (row + rows - 1) / shape->group + 1;
        for (int32_t head = 0; head < shape->num_kv_heads; head++) {
            *add_item(plan) =
                (struct attention_item){.sequence = sequence,
                                        .kv_head = (int16_t)head,
                                        .tile = (int16_t)tile,
                                        .num_rows = (int16_t)rows,
                                        .run_rows = (int16_t)rows,
                                        .first_run = plan->num_runs,
                                        .first_row = first_position * shape->group + row,
                                        .kv_begin = max_int32(begin, own_begin),
                                        .kv_end = end};
            add_run(plan, start[0] * shape->group + row);
        }
    }
}

/* Tiles with as many of a prefix's sequences as they have room for. The sequences are those whose
 * own tiles come next: a run for each and KV head. */
static void find_shared_tiles(struct attention_plan *plan, const struct attention_shape *shape,
                              const struct attention_prefix *prefix) {
    int32_t num_tiles = attention_prefix_tiles(prefix->num_sequences, shape->group);
    for (int32_t tile = 0; tile < num_tiles; tile++) {
        int32_t first = prefix->num_sequences * tile / num_tiles;
        int32_t end = prefix->num_sequences * (tile + 1) / num_tiles;
        int32_t num_rows = (end - first) * shape->group;
        for (int32_t head = 0; head < shape->num_kv_heads; head++)
            *add_item(plan) = (struct attention_item){
                .sequence = plan->prefixes.sequences[prefix->first + first],
                .kv_head = (int16_t)head,
                .tile = (int16_t)tile_of(num_rows),
                .num_rows = (int16_t)num_rows,
                .run_rows = (int16_t)shape->group,
                .first_run = plan->num_runs + first * shape->num_kv_heads + head,
                .first_row = (prefix->kv_end - 1) * shape->group,
                .kv_begin = prefix->kv_begin,
                .kv_end = prefix->kv_end};
    }
}

/* Items of prefixes come before those of their sequences' own ranges. */
static void find_all_tiles(struct attention_plan *plan, const struct step_inputs *step,
                           const struct attention_shape *shape) {
    const struct attention_prefixes *prefixes = &plan->prefixes;
    for (int32_t i = 0, next = 0; i < step->num_seqs; i++) {
        int32_t sequence = prefixes->sequences[i];
        for (; next < prefixes->num_found && prefixes->found[next].first == i; next++)
            find_shared_tiles(plan, shape, &prefixes->found[next]);
        find_tiles(plan, step, shape, sequence, prefixes->own_begins[sequence]);
    }
}

/* Whether blocks have more than a tile to do each: otherwise less to read saves no time. */
static bool fills_grid(const struct attention_plan *plan, const struct step_inputs *step,
                       const struct attention_shape *shape) {
    int64_t total = 0;
    for (int32_t s = 0; s < step->num_seqs; s++)
        total += step->context_lens[s];
    return total * shape->num_kv_heads >
           (int64_t)plan->num_blocks[ATTENTION_NARROW] * ATTENTION_KV_TILE;
}

/* In KV tiles: what one block of each grid has to do, if all have the same. */
static void find_fair_shares(const struct attention_plan *plan, int32_t *out) {
    int64_t totals[NUM_ATTENTION_TILES] = {0};
    for (int32_t i = 0; i < plan->num_items; i++)
        totals[plan->found[i].tile] += num_tiles_of(&plan->found[i]);
    for (int32_t tile = 0; tile < NUM_ATTENTION_TILES; tile++)
        out[tile] = (int32_t)div_up(totals[tile], plan->num_blocks[tile]);
}

static bool has_several_runs(const struct attention_item *item) {
    return item->num_rows > item->run_rows;
}

/* Of the item's range, none with more than a fair share unless it would be too short. */
static int32_t num_pieces_of(const struct step_inputs *step, const struct attention_item *item,
                             int32_t share) {
    int32_t num_tiles = num_tiles_of(item);
    if (num_tiles <= share)
        return 1;
    const int32_t *start = step->query_start + item->sequence;
    bool is_decode = start[1] - start[0] == 1;
    bool has_many_parts = has_several_runs(item) && item->tile == ATTENTION_WIDE;
    int32_t least = is_decode && !has_many_parts ? ATTENTION_MIN_DECODE_PIECE : ATTENTION_MIN_PIECE;
    return (int32_t)div_up(num_tiles, max_int32(share, least / ATTENTION_KV_TILE));
}

/* Gives the item, whose pieces each leave partial results for its runs, the parts after those of
 * the runs' previous items. */
static void take_parts(struct attention_plan *plan, const struct attention_shape *shape,
                       struct attention_item *item, int32_t num_pieces) {
    struct attention_run *run = &plan->runs[item->first_run];
    item->part = run->num_parts;
    for (int32_t row = 0; row < item->num_rows; row += item->run_rows, run += shape->num_kv_heads)
        run->num_parts += num_pieces;
}

static void split(struct attention_plan *plan, int32_t index, int32_t num_pieces) {
    struct attention_item *item = &plan->found[index];
    const struct attention_item whole = *item;
    const int64_t num_tiles = num_tiles_of(&whole);
    for (int32_t p = 0; p < num_pieces; p++) {
        if (p > 0)
            item = add_item(plan);
        *item = whole;
        item->part += p;
        item->kv_begin += (int32_t)(num_tiles * p / num_pieces) * ATTENTION_KV_TILE;
        if (p + 1 < num_pieces)
            item->kv_end =
                whole.kv_begin + (int32_t)(num_tiles * (p + 1) / num_pieces) * ATTENTION_KV_TILE;
    }
}

/* A run that has all its parts gets room for their results. */
static void place_parts(struct attention_plan *plan, const struct attention_item *item) {
    struct attention_run *run = &plan->runs[item->first_run];
    run->first_part_row = plan->num_part_rows;
    plan->num_part_rows += run->num_parts * item->run_rows;
    CHECK(plan->num_part_rows <= plan->max_part_rows);
}

static void split_long_ranges(struct attention_plan *plan, const struct step_inputs *step,
                              const struct attention_shape *shape) {
    int32_t shares[NUM_ATTENTION_TILES], num_whole = plan->num_items;
    find_fair_shares(plan, shares);
    for (int32_t i = 0; i < num_whole; i++) {
        struct attention_item *item = &plan->found[i];
        int32_t num_pieces = num_pieces_of(step, item, shares[item->tile]);
        bool is_shared = has_several_runs(item);
        if (num_pieces == 1 && !is_shared && plan->runs[item->first_run].num_parts == 0)
            continue;
        take_parts(plan, shape, item, num_pieces);
        if (num_pieces > 1) {
            split(plan, i, num_pieces);
            plan->num_split_ranges++;
        }
        if (!is_shared)
            place_parts(plan, item);
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

/* Of the items of one kind of tile. Blocks wait in lists by their load. Loads differ by the largest
 * cost at most, so that as many lists and one, used in turns, are enough; nothing is searched or
 * sifted for an item but the next list that is not empty. */
static void assign_blocks(struct attention_plan *plan, enum attention_tile tile, int32_t most) {
    int32_t *first = plan->by_cost, *next = plan->next_block, at = 0;
    const int32_t num_blocks = plan->num_blocks[tile];
    for (int32_t i = 0; i <= most; i++)
        first[i] = NO_BLOCK;
    for (int32_t b = 0; b < num_blocks; b++)
        next[b] = b + 1 < num_blocks ? b + 1 : NO_BLOCK;
    first[0] = 0;
    for (int32_t i = 0; i < plan->num_items; i++) {
        if (plan->found[plan->order[i]].tile != (int16_t)tile)
            continue;
        while (first[at] == NO_BLOCK)
            at = at < most ? at + 1 : 0;
        int32_t block = first[at], to = at + plan->costs[plan->order[i]];
        to -= to > most ? most + 1 : 0;
        first[at] = next[block];
        next[block] = first[to];
        first[to] = block;
        plan->block_of[i] = attention_plan_first_start(plan, tile) + block;
    }
}

/* Between the two grids' starts there is one more, the end of the first: as a block without
 * items. */
static void list_by_block(struct attention_plan *plan) {
    int32_t *starts = plan->block_items, num_starts = attention_plan_num_starts(plan);
    memset(starts, 0, (size_t)num_starts * sizeof(*starts));
    for (int32_t i = 0; i < plan->num_items; i++)
        starts[plan->block_of[i]]++;
    for (int32_t b = 0, start = 0; b < num_starts; b++) {
        int32_t count = starts[b];
        starts[b] = start;
        start += count;
    }
    for (int32_t i = 0; i < plan->num_items; i++)
        plan->items[starts[plan->block_of[i]]++] = plan->found[plan->order[i]];
    /* Each start has become its block's end, which is the next one's start. */
    memmove(starts + 1, starts, (size_t)(num_starts - 1) * sizeof(*starts));
    starts[0] = 0;
}

void attention_plan_make(struct attention_plan *plan, const struct step_inputs *step,
                         const struct attention_shape *shape) {
    plan->num_items = plan->num_runs = plan->num_part_rows = plan->num_split_ranges = 0;
    if (!shape->batch_invariant && fills_grid(plan, step, shape))
        attention_prefixes_find(&plan->prefixes, step, shape);
    else
        attention_prefixes_none(&plan->prefixes, step);
    plan->num_shared_prefixes = plan->prefixes.num_found;
    find_all_tiles(plan, step, shape);
    if (!shape->batch_invariant)
        split_long_ranges(plan, step, shape);
    int32_t most = find_costs(plan);
    sort_by_cost(plan, most);
    for (enum attention_tile tile = 0; tile < NUM_ATTENTION_TILES; tile++)
        assign_blocks(plan, tile, most);
    list_by_block(plan);
}
