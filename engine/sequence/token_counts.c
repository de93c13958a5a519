#include "engine/sequence/token_counts.h"

#include "config/base/check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 64

/* Both arrays have doubled beyond what is needed; there are two slots to an item. */
size_t token_counts_max_bytes(int32_t num_items) {
    return 2 * (size_t)num_items * (sizeof(struct token_count) + 2 * sizeof(int32_t));
}

void token_counts_finish(struct token_counts *counts) {
    free(counts->items);
    free(counts->slots);
    memset(counts, 0, sizeof(*counts));
}

/* Returns the slot of the token, or the empty one it belongs in: open addressing with linear
 * probing. */
static int32_t *find_slot(const struct token_counts *counts, int32_t token) {
    uint32_t mask = (uint32_t)counts->num_slots - 1;
    uint32_t i = (uint32_t)token * UINT32_C(2654435769) & mask;
    while (counts->slots[i] >= 0 && counts->items[counts->slots[i]].token != token)
        i = (i + 1) & mask;
    return &counts->slots[i];
}

/* Doubles the table: items fill at most half of it. */
static bool grow(struct token_counts *counts) {
    CHECK(counts->num_slots < INT32_MAX / 2);
    int32_t num_slots = counts->num_slots > 0 ? counts->num_slots * 2 : FIRST_SLOTS;
    struct token_count *items =
        realloc(counts->items, (size_t)num_slots / 2 * sizeof(*counts->items));
    if (items == NULL)
        return false;
    counts->items = items;
    int32_t *slots = malloc((size_t)num_slots * sizeof(*slots));
    if (slots == NULL)
        return false;
    free(counts->slots);
    counts->slots = slots;
    counts->num_slots = num_slots;
    for (int32_t i = 0; i < num_slots; i++)
        slots[i] = -1;
    for (int32_t i = 0; i < counts->num_items; i++)
        *find_slot(counts, items[i].token) = i;
    return true;
}

int token_counts_add(struct token_counts *counts, int32_t token, int32_t times_generated) {
    if (counts->num_items == counts->num_slots / 2 && !grow(counts))
        return -1;
    int32_t *slot = find_slot(counts, token);
    if (*slot < 0) {
        *slot = counts->num_items;
        counts->items[counts->num_items++] = (struct token_count){.token = token};
    }
    counts->items[*slot].output_count += times_generated;
    return 0;
}

/* Returns the item of the token; of those after `num_old`, which are in no table, by search. -1:
 * none. */
static int32_t find_item(const struct token_counts *counts, const struct token_count *items,
                         int32_t num_items, int32_t token) {
    int32_t found = counts->num_slots > 0 ? *find_slot(counts, token) : -1;
    for (int32_t i = counts->num_items; found < 0 && i < num_items; i++)
        if (items[i].token == token)
            found = i;
    return found;
}

int32_t token_counts_fill(const struct token_counts *counts, const int32_t *tokens,
                          int32_t num_tokens, struct token_count *out) {
    int32_t num_items = counts->num_items;
    if (num_items > 0)
        memcpy(out, counts->items, (size_t)num_items * sizeof(*out));
    for (int32_t i = 0; i < num_tokens; i++) {
        int32_t item = find_item(counts, out, num_items, tokens[i]);
        if (item < 0) {
            item = num_items++;
            out[item] = (struct token_count){.token = tokens[i]};
        }
        out[item].output_count++;
    }
    return num_items;
}
