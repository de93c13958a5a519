/* Sequences are distinguished by one block id at a time: those with the same next block are a
 * class, and a class is examined separately, after what all of it shares. So each table is read
 * once, as far as it is shared, and a step without shared blocks costs one look at each sequence's
 * first block. */
#include "kernels/cuda/attention/attention_prefix.h"

#include "config/base/numbers.h"

#include <stdlib.h>
#include <string.h>

#define NO_BLOCK (-1)
#define NO_CLASS (-1)
/* How often classes are split. Deeper trees are rare: sequences that end where others continue.
 */
#define MAX_DEPTH 4

struct search {
    struct attention_prefixes *prefixes;
    const struct step_inputs *step;
    const struct attention_shape *shape;
};

/* A power of two: of a hash table that is half empty at least. */
static int32_t num_slots_for(int32_t num_classes) {
    int32_t num_slots = 4;
    while (num_slots / 2 < num_classes)
        num_slots *= 2;
    return num_slots;
}

int attention_prefixes_init(struct attention_prefixes *p, int32_t max_seqs) {
    size_t n = (size_t)max_seqs;
    *p = (struct attention_prefixes){0};
    p->found = calloc(n, sizeof(*p->found));
    p->sequences = calloc(n, sizeof(*p->sequences));
    p->own_begins = calloc(n, sizeof(*p->own_begins));
    p->slots = calloc((size_t)num_slots_for(max_seqs), sizeof(*p->slots));
    p->class_of = calloc(n, sizeof(*p->class_of));
    p->keys = calloc(n, sizeof(*p->keys));
    p->counts = calloc(n, sizeof(*p->counts));
    p->moved = calloc(n, sizeof(*p->moved));
    if (p->found && p->sequences && p->own_begins && p->slots && p->class_of && p->keys &&
        p->counts && p->moved)
        return 0;
    attention_prefixes_finish(p);
    return -1;
}

void attention_prefixes_finish(struct attention_prefixes *p) {
    free(p->found);
    free(p->sequences);
    free(p->own_begins);
    free(p->slots);
    free(p->class_of);
    free(p->keys);
    free(p->counts);
    free(p->moved);
    *p = (struct attention_prefixes){0};
}

int32_t attention_prefix_tiles(int32_t num_sequences, int32_t group) {
    int32_t most = ATTENTION_WIDE_ROWS / group;
    return num_sequences * group <= ATTENTION_NARROW_ROWS ? 1 : (num_sequences + most - 1) / most;
}

bool attention_prefix_pays(int32_t num_tokens, int32_t num_sequences, int32_t num_readers,
                           int32_t group, bool is_first) {
    int32_t num_tiles = attention_prefix_tiles(num_sequences, group);
    int64_t saved = (int64_t)(num_readers - num_tiles) * num_tokens;
    int64_t num_part_rows = (int64_t)num_sequences * group * (is_first ? 2 : 1);
    return saved > (int64_t)num_tiles * ATTENTION_KV_TILE + num_part_rows * ATTENTION_PART_TOKENS;
}

/* Tokens of the sequence that may be in a prefix: the last one is its own. The table bounds them
 * where the plan is made for layers with a cache of smaller blocks, which this step does not have.
 */
static int32_t shareable_tokens(const struct search *s, int32_t sequence) {
    const int32_t *start = s->step->query_start + sequence, window = s->shape->window;
    int32_t length = s->step->context_lens[sequence];
    bool is_shareable = start[1] - start[0] == 1 && (window == 0 || length <= window);
    int64_t table = (int64_t)s->step->max_blocks_per_seq * s->shape->block_size;
    return is_shareable ? (int32_t)min_int64(length - 1, table) : 0;
}

/* How many of n numbers are the same before the first that differ. */
static int32_t count_equal(const int32_t *a, const int32_t *b, int32_t n) {
    int32_t i = 0;
    if (n > 0 && memcmp(a, b, (size_t)n * sizeof(*a)) == 0)
        return n;
    for (int32_t differences = 0; i + 16 <= n; i += 16) {
        for (int32_t k = 0; k < 16; k++)
            differences |= a[i + k] ^ b[i + k];
        if (differences != 0)
            break;
    }
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Whole blocks that all these sequences have in common, of which `num_known` are known. */
static int32_t common_blocks(const struct search *s, const int32_t *sequences, int32_t num,
                             int32_t num_known) {
    int32_t length = shareable_tokens(s, sequences[0]);
    int32_t common = INT32_MAX;
    for (int32_t i = 1; i < num && common > 0; i++) {
        length = min_int32(length, shareable_tokens(s, sequences[i]));
        common = min_int32(common, length / s->shape->block_size - num_known);
        for (int32_t group = 0; group < max_int32(s->step->num_groups, 1); group++)
            common = count_equal(step_table(s->step, group, sequences[0]) + num_known,
                                 step_table(s->step, group, sequences[i]) + num_known, common);
    }
    return num_known + common;
}

/* The sequence's block, if it may be in a prefix; of several groups a number that is the same for
 * the same blocks. Where it is the same for others, their class shares less. */
static int32_t block_at(const struct search *s, int32_t sequence, int32_t index) {
    bool is_whole = (index + 1) * s->shape->block_size <= shareable_tokens(s, sequence);
    if (!is_whole)
        return NO_BLOCK;
    uint32_t number = (uint32_t)step_table(s->step, 0, sequence)[index];
    for (int32_t group = 1; group < s->step->num_groups; group++)
        number = number * 2654435761u + (uint32_t)step_table(s->step, group, sequence)[index];
    return (int32_t)(number & INT32_MAX);
}

/* The class of that block, or a new one. */
static int32_t find_class(struct attention_prefixes *p, int32_t num_slots, int32_t block,
                          int32_t *num_classes) {
    uint32_t mask = (uint32_t)num_slots - 1, at = ((uint32_t)block * 2654435769u >> 8) & mask;
    if (block != NO_BLOCK) {
        while (p->slots[at] != NO_CLASS && p->keys[p->slots[at]] != block)
            at = (at + 1) & mask;
        if (p->slots[at] != NO_CLASS)
            return p->slots[at];
        p->slots[at] = *num_classes;
    }
    p->keys[*num_classes] = block;
    p->counts[*num_classes] = 0;
    return (*num_classes)++;
}

/* Brings each class's sequences side by side; classes and those within stay in order. */
static void move_together(struct attention_prefixes *p, int32_t *sequences, int32_t num,
                          int32_t num_classes) {
    for (int32_t c = 0, start = 0; c < num_classes; c++) {
        int32_t count = p->counts[c];
        p->counts[c] = start;
        start += count;
    }
    for (int32_t i = 0; i < num; i++)
        p->moved[p->counts[p->class_of[i]]++] = sequences[i];
    memcpy(sequences, p->moved, (size_t)num * sizeof(*sequences));
}

/* By their block at this index. Returns how many read what is before it if these sequences do not
 * do so together. */
static int32_t tell_apart(const struct search *s, int32_t *sequences, int32_t num, int32_t index) {
    struct attention_prefixes *p = s->prefixes;
    int32_t num_classes = 0, num_readers = 0, num_slots = num_slots_for(num);
    memset(p->slots, 0xff, (size_t)num_slots * sizeof(*p->slots));
    for (int32_t i = 0; i < num; i++) {
        p->class_of[i] = find_class(p, num_slots, block_at(s, sequences[i], index), &num_classes);
        p->counts[p->class_of[i]]++;
    }
    if (num_classes == num)
        return num;
    for (int32_t c = 0; c < num_classes; c++)
        num_readers += attention_prefix_tiles(p->counts[c], s->shape->group);
    move_together(p, sequences, num, num_classes);
    return num_readers;
}

static void add_prefix(struct attention_prefixes *p, int32_t first, int32_t num, int32_t begin,
                       int32_t end) {
    p->found[p->num_found++] = (struct attention_prefix){first, num, begin, end};
    for (int32_t i = 0; i < num; i++)
        p->own_begins[p->sequences[first + i]] = end;
}

/* Of num sequences from `first` on, which have num_known blocks in common and num_prefixes that
 * end at `begin`. */
static void find_within(const struct search *s, int32_t first, int32_t num, int32_t num_known,
                        int32_t num_prefixes, int32_t depth) {
    struct attention_prefixes *p = s->prefixes;
    int32_t *sequences = p->sequences + first;
    int32_t common = common_blocks(s, sequences, num, num_known);
    int32_t num_readers = tell_apart(s, sequences, num, common);
    int32_t begin = p->own_begins[sequences[0]];
    int32_t end = common * s->shape->block_size / ATTENTION_KV_TILE * ATTENTION_KV_TILE;
    if (attention_prefix_pays(end - begin, num, num_readers, s->shape->group, num_prefixes == 0)) {
        add_prefix(p, first, num, begin, end);
        num_prefixes++;
    }
    if (num_readers == num || num_prefixes == ATTENTION_MAX_PREFIXES || depth == MAX_DEPTH)
        return;
    for (int32_t i = 0, n; i < num; i += n) {
        int32_t block = block_at(s, sequences[i], common);
        for (n = 1; i + n < num && block_at(s, sequences[i + n], common) == block; n++)
            ;
        if (n > 1 && block != NO_BLOCK)
            find_within(s, first + i, n, common, num_prefixes, depth + 1);
    }
}

void attention_prefixes_none(struct attention_prefixes *p, const struct step_inputs *step) {
    p->num_found = 0;
    for (int32_t i = 0; i < step->num_seqs; i++)
        p->sequences[i] = i;
    memset(p->own_begins, 0, (size_t)step->num_seqs * sizeof(*p->own_begins));
}

void attention_prefixes_find(struct attention_prefixes *p, const struct step_inputs *step,
                             const struct attention_shape *shape) {
    const struct search search = {p, step, shape};
    attention_prefixes_none(p, step);
    /* A tile has room for three sequences, and so each that is made has two at least. */
    if (step->num_seqs > 1 && 3 * shape->group <= ATTENTION_WIDE_ROWS)
        find_within(&search, 0, step->num_seqs, 0, 0, 1);
    if (p->num_found == 0)
        attention_prefixes_none(p, step);
}
