/* Builds the table of merges, from a list or from scores, and where pieces may be cut
 * (tokenizer_bpe.h). */
#include "models/tokenizer/tokenizer_bpe.h"

#include "config/base/array.h"
#include "config/base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Longer tokens have no place in a vocabulary with scores: every way to halve one is tried. */
#define MAX_SCORED_BYTES 1024

/* Writes the key of a token's written form (see vocabulary.h) and returns its length, -1 if it has
 * none. */
static int64_t write_key(const struct vocabulary *v, struct text written, char *out) {
    if (written.length > VOCABULARY_MAX_TOKEN_BYTES)
        return -1;
    if (v->alphabet == ALPHABET_BYTES)
        return vocabulary_decode(written, out);
    memcpy(out, written.data, written.length);
    return (int64_t)written.length;
}

static void put_merge(struct bpe *bpe, struct bpe_merge merge) {
    const struct vocabulary *v = bpe->vocabulary;
    if (vocabulary_is_text(v, merge.left) && vocabulary_is_text(v, merge.right) &&
        vocabulary_is_text(v, merge.merged))
        *bpe_find_slot(bpe, merge.left, merge.right) = merge;
}

/* Adds merge number `rank`; one of characters that stand for no byte never happens and is passed
 * over. `buffer` has room for two tokens. */
static int add_merge(struct bpe *bpe, const struct merge_texts *texts, uint32_t rank, char *buffer,
                     struct error *err) {
    const struct vocabulary *v = bpe->vocabulary;
    int64_t a = write_key(v, texts->left, buffer);
    int64_t b = a < 0 ? -1 : write_key(v, texts->right, buffer + a);
    if (b < 0)
        return 0;
    int32_t left = vocabulary_find_any(v, buffer, (size_t)a);
    int32_t right = vocabulary_find_any(v, buffer + a, (size_t)b);
    int32_t merged = vocabulary_find_any(v, buffer, (size_t)(a + b));
    if (left < 0 || right < 0 || merged < 0)
        return error_set(err, ERROR_MODEL, "merges[%u]: its %s is not in the vocabulary", rank,
                         left < 0    ? "left token"
                         : right < 0 ? "right token"
                                     : "result");
    put_merge(bpe, (struct bpe_merge){left, right, rank, merged});
    return 0;
}

static int allocate(struct bpe *bpe, size_t num_merges, struct error *err) {
    size_t num_slots = 64;
    if (num_merges > BPE_MAX_MERGES)
        return error_set(err, ERROR_MODEL, "the tokenizer has %zu merges, allowed are %d",
                         num_merges, BPE_MAX_MERGES);
    while (num_slots * 3 / 4 < num_merges)
        num_slots *= 2;
    bpe->mask = num_slots - 1;
    bpe->merges = malloc(num_slots * sizeof(*bpe->merges));
    bpe->whole = calloc((size_t)bpe->vocabulary->size, sizeof(*bpe->whole));
    if (bpe->merges == NULL || bpe->whole == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu merges", num_merges);
    for (size_t i = 0; i < num_slots; i++)
        bpe->merges[i] = (struct bpe_merge){.left = -1};
    return 0;
}

static int add_list(struct bpe *bpe, const struct tokenizer_spec *spec, struct error *err) {
    if (allocate(bpe, spec->num_merges, err) != 0)
        return -1;
    char *buffer = malloc(2 * VOCABULARY_MAX_TOKEN_BYTES);
    if (buffer == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the merges of a tokenizer");
    int status = 0;
    for (size_t i = 0; status == 0 && i < spec->num_merges; i++)
        status = add_merge(bpe, &spec->merges[i], (uint32_t)i, buffer, err);
    free(buffer);
    return status;
}

/* --- Merges from scores --- */

struct scored_merge {
    float score;
    uint32_t left_characters, right_characters;
    int32_t left, right, merged;
};

struct scored_list {
    struct scored_merge *merges;
    size_t count, capacity;
};

static int append_scored(struct scored_list *list, struct scored_merge merge) {
    if (!array_reserve(&list->merges, &list->capacity, list->count + 1, sizeof(merge)))
        return -1;
    list->merges[list->count++] = merge;
    return 0;
}

/* Orders like Hugging Face's converter (generate_merges in transformers'
 * convert_slow_tokenizer.py): by score, then the longer left part, then the longer right one, in
 * characters, then by id. */
static int compare_scored(const void *a, const void *b) {
    const struct scored_merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left_characters != y->left_characters)
        return x->left_characters > y->left_characters ? -1 : 1;
    if (x->right_characters != y->right_characters)
        return x->right_characters > y->right_characters ? -1 : 1;
    return x->merged < y->merged ? -1 : 1;
}

static uint32_t count_characters(const char *text, size_t length) {
    uint32_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += !utf8_continues(text[i]);
    return count;
}

/* Adds every way to make `token` of two others. */
static int halve(const struct vocabulary *v, int32_t token, float score, struct scored_list *list) {
    struct text text = vocabulary_raw(v, token);
    uint32_t characters = count_characters(text.data, text.length);
    for (size_t i = 1; i < text.length; i++) {
        if (utf8_continues(text.data[i]))
            continue;
        int32_t left = vocabulary_find(v, text.data, i);
        int32_t right = left < 0 ? -1 : vocabulary_find(v, text.data + i, text.length - i);
        uint32_t left_characters = count_characters(text.data, i);
        if (right >= 0 && append_scored(list, (struct scored_merge){score, left_characters,
                                                                    characters - left_characters,
                                                                    left, right, token}) != 0)
            return -1;
    }
    return 0;
}

static int list_scored(const struct tokenizer_spec *spec, const struct vocabulary *v,
                       struct scored_list *list, struct error *err) {
    for (int32_t i = 0; i < v->size; i++) {
        struct text text = vocabulary_raw(v, i);
        /* The last of tokens with the same text is meant. */
        if (!vocabulary_is_text(v, i) || vocabulary_find_any(v, text.data, text.length) != i)
            continue;
        if (text.length > MAX_SCORED_BYTES)
            return error_set(err, ERROR_MODEL,
                             "token %d has %zu bytes, allowed are %d in a vocabulary with scores",
                             i, text.length, MAX_SCORED_BYTES);
        if (halve(v, i, spec->scores[i], list) != 0)
            return error_set(err, ERROR_MEMORY, "no memory for the merges of a tokenizer");
    }
    return 0;
}

static int add_scored(struct bpe *bpe, const struct tokenizer_spec *spec, struct error *err) {
    struct scored_list list = {0};
    int status = list_scored(spec, bpe->vocabulary, &list, err);
    if (status == 0)
        status = allocate(bpe, list.count, err);
    if (status == 0 && list.count > 0)
        qsort(list.merges, list.count, sizeof(*list.merges), compare_scored);
    for (size_t i = 0; status == 0 && i < list.count; i++) {
        const struct scored_merge *m = &list.merges[i];
        put_merge(bpe, (struct bpe_merge){m->left, m->right, (uint32_t)i, m->merged});
    }
    free(list.merges);
    return status;
}

/* --- Characters --- */

/* Returns the symbol of the last character of a token, -1 if it has none. */
static int32_t last_symbol(const struct vocabulary *v, struct text text) {
    size_t i = text.length - 1;
    while (i > 0 && utf8_continues(text.data[i]))
        i--;
    return vocabulary_find(v, text.data + i, text.length - i);
}

static int32_t first_symbol(const struct vocabulary *v, struct text text) {
    size_t length = utf8_char_bytes(text.data, text.length);
    return vocabulary_find(v, text.data, length > 0 ? length : 1);
}

/* Notes which symbols merges join across; a merge whose symbols have no token never happens. */
static int note_joints(struct bpe *bpe, struct error *err) {
    const struct vocabulary *v = bpe->vocabulary;
    bpe->joints_mask = 8 * (bpe->mask + 1) - 1;
    bpe->joints = calloc((bpe->joints_mask + 1) / 64, sizeof(*bpe->joints));
    if (bpe->joints == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the merges of a tokenizer");
    for (size_t i = 0; i <= bpe->mask; i++) {
        const struct bpe_merge *merge = &bpe->merges[i];
        if (merge->left < 0)
            continue;
        int32_t left = last_symbol(v, vocabulary_raw(v, merge->left));
        int32_t right = first_symbol(v, vocabulary_raw(v, merge->right));
        size_t bit = bpe_hash_pair(left, right) & bpe->joints_mask;
        bpe->joints[bit / 64] |= UINT64_C(1) << bit % 64;
    }
    for (int c = 0; c < 128; c++)
        bpe->characters[c] = vocabulary_find(v, &(char){(char)c}, 1);
    return 0;
}

int bpe_init(const struct tokenizer_spec *spec, const struct vocabulary *vocabulary,
             struct bpe *out, struct error *err) {
    struct bpe bpe = {
        .vocabulary = vocabulary,
        .ignore_merges = spec->ignore_merges,
        .fuse_unknown = spec->fuse_unknown,
        .unknown = spec->unknown,
    };
    int status = spec->scores != NULL ? add_scored(&bpe, spec, err) : add_list(&bpe, spec, err);
    if (status == 0 && spec->alphabet == ALPHABET_CHARACTERS)
        status = note_joints(&bpe, err);
    if (status != 0) {
        bpe_finish(&bpe);
        return -1;
    }
    *out = bpe;
    return 0;
}

void bpe_finish(struct bpe *bpe) {
    free(bpe->merges);
    free((void *)bpe->whole);
    free(bpe->joints);
    *bpe = (struct bpe){0};
}
