#include "engine/grammar/machine/grammar_vocabulary.h"

#include "config/base/numbers.h"
#include "engine/grammar/machine/character_kinds.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    struct text piece;
    int32_t token;
};

bool grammar_vocabulary_has_text(const struct tokenizer *tokenizer, int32_t token) {
    if (tokenizer_is_special(tokenizer, token) || tokenizer_is_eos(tokenizer, token))
        return false;
    size_t length = tokenizer_piece(tokenizer, token).length;
    return length > 0 && length <= GRAMMAR_MAX_TOKEN_BYTES;
}

static int compare_entries(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    size_t common = min_size(x->piece.length, y->piece.length);
    int order = memcmp(x->piece.data, y->piece.data, common);
    if (order == 0)
        order = (x->piece.length > y->piece.length) - (x->piece.length < y->piece.length);
    return order != 0 ? order : (x->token > y->token) - (x->token < y->token);
}

static size_t common_bytes(struct text a, struct text b) {
    size_t end = min_size(a.length, b.length), i = 0;
    while (i < end && a.data[i] == b.data[i])
        i++;
    return i;
}

/* The tokens with text, sorted by their bytes. */
static int32_t sort_tokens(const struct tokenizer *tokenizer, int32_t vocab_size,
                           struct entry *out) {
    int32_t count = 0;
    for (int32_t token = 0; token < vocab_size; token++)
        if (grammar_vocabulary_has_text(tokenizer, token))
            out[count++] = (struct entry){tokenizer_piece(tokenizer, token), token};
    qsort(out, (size_t)count, sizeof(*out), compare_entries);
    return count;
}

/* Sorted entries make the tree in the order of its walk: each adds the bytes in which it goes
 * beyond the one before it. */
static void fill_tree(struct vocabulary_tree *v, const struct entry *entries, int32_t count) {
    int32_t open[GRAMMAR_MAX_TOKEN_BYTES]; /* the nodes of the last entry's bytes */
    size_t depth = 0;
    for (int32_t i = 0; i < count; i++) {
        struct text piece = entries[i].piece;
        size_t common = i > 0 ? common_bytes(entries[i - 1].piece, piece) : 0;
        while (depth > common)
            v->nodes[open[--depth]].end = v->num_nodes;
        for (; depth < piece.length; depth++) {
            open[depth] = v->num_nodes;
            v->nodes[v->num_nodes++] = (struct vocabulary_node){
                .first_token = i, .depth = (uint16_t)depth, .byte = (uint8_t)piece.data[depth]};
        }
        v->tokens[i] = entries[i].token;
        struct vocabulary_node *node = &v->nodes[open[depth - 1]];
        if (node->num_tokens == 0)
            node->first_token = i;
        if (node->num_tokens < UINT16_MAX)
            node->num_tokens++;
    }
    while (depth > 0)
        v->nodes[open[--depth]].end = v->num_nodes;
    v->nodes[v->num_nodes] = (struct vocabulary_node){.first_token = count};
    token_tails_mark(v);
}

static size_t count_nodes(const struct entry *entries, int32_t count) {
    size_t num_nodes = 0;
    for (int32_t i = 0; i < count; i++)
        num_nodes += entries[i].piece.length -
                     (i > 0 ? common_bytes(entries[i - 1].piece, entries[i].piece) : 0);
    return num_nodes;
}

static int build_tree(struct vocabulary_tree *tree, const struct entry *entries, int32_t count) {
    size_t num_nodes = count_nodes(entries, count);
    if (num_nodes >= INT32_MAX)
        return -1;
    tree->nodes = malloc((num_nodes + 1) * sizeof(*tree->nodes));
    tree->tail_kinds = malloc((num_nodes + 1) * sizeof(*tree->tail_kinds));
    tree->tokens = malloc(((size_t)count + 1) * sizeof(*tree->tokens));
    if (tree->nodes == NULL || tree->tail_kinds == NULL || tree->tokens == NULL)
        return -1;
    fill_tree(tree, entries, count);
    return 0;
}

static void finish_tree(struct vocabulary_tree *tree) {
    free(tree->nodes);
    free(tree->tail_kinds);
    free(tree->tokens);
}

static size_t num_mask_words(const struct grammar_vocabulary *v) {
    return ((size_t)v->vocab_size + 31) / 32;
}

static uint32_t *plain_mask(const struct grammar_vocabulary *v, int length) {
    return v->plain_masks + (size_t)(length - 1) * num_mask_words(v);
}

/* Notes the plain tokens and leaves the others in `entries`; returns how many those are. */
static int32_t part_plain(struct grammar_vocabulary *v, struct entry *entries, int32_t count) {
    int32_t num_others = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t token = entries[i].token;
        int length = token_tails_plain_length(entries[i].piece);
        if (length == 0) {
            entries[num_others++] = entries[i];
            continue;
        }
        plain_mask(v, length)[token / 32] |= UINT32_C(1) << (token % 32);
        v->num_plain[length - 1]++;
    }
    return num_others;
}

/* Adds to each mask the plain tokens that are shorter. */
static void sum_plain(struct grammar_vocabulary *v) {
    for (int length = 2; length <= VOCABULARY_MAX_TAIL; length++) {
        const uint32_t *shorter = plain_mask(v, length - 1);
        uint32_t *mask = plain_mask(v, length);
        for (size_t i = 0; i < num_mask_words(v); i++)
            mask[i] |= shorter[i];
        v->num_plain[length - 1] += v->num_plain[length - 2];
    }
}

static int count_quotes(struct text piece) {
    int count = 0;
    for (size_t i = 0; i < piece.length && count < VOCABULARY_MAX_QUOTES; i++)
        count += piece.data[i] == '"';
    return count;
}

static int note_quoted(struct grammar_vocabulary *v, const struct entry *entries, int32_t count) {
    int32_t num_quoted = 0;
    v->quoted = malloc(((size_t)count + 1) * sizeof(*v->quoted));
    if (v->quoted == NULL)
        return -1;
    for (int quotes = VOCABULARY_MAX_QUOTES; quotes > 0; quotes--) {
        for (int32_t i = 0; i < count; i++)
            if (count_quotes(entries[i].piece) == quotes)
                v->quoted[num_quoted++] = entries[i].token;
        v->num_quoted[quotes - 1] = num_quoted;
    }
    return 0;
}

static void note_line_break(struct grammar_vocabulary *v) {
    int64_t count =
        tokenizer_encode(v->tokenizer, "\n", 1, 0, v->line_break, VOCABULARY_MAX_LINE_BREAK);
    struct text first = {0};
    if (count > 0 && count <= VOCABULARY_MAX_LINE_BREAK)
        first = tokenizer_piece(v->tokenizer, v->line_break[0]);
    v->num_line_break = first.length > 0 && first.data[0] == ' ' ? (int32_t)count : 0;
}

static struct grammar_vocabulary *create(const struct tokenizer *tokenizer, struct entry *entries) {
    struct grammar_vocabulary *v = calloc(1, sizeof(*v));
    if (v == NULL)
        return NULL;
    v->tokenizer = tokenizer;
    v->vocab_size = tokenizer_vocab_size(tokenizer);
    v->plain_masks = calloc(VOCABULARY_MAX_TAIL * num_mask_words(v) + 1, sizeof(*v->plain_masks));
    int32_t count = sort_tokens(tokenizer, v->vocab_size, entries);
    for (int32_t i = 0; i < count; i++)
        if ((int)entries[i].piece.length > v->max_token_bytes)
            v->max_token_bytes = (int)entries[i].piece.length;
    if (v->plain_masks == NULL || note_quoted(v, entries, count) != 0 ||
        build_tree(&v->all, entries, count) != 0 ||
        build_tree(&v->others, entries, part_plain(v, entries, count)) != 0) {
        grammar_vocabulary_destroy(v);
        return NULL;
    }
    sum_plain(v);
    note_line_break(v);
    return v;
}

int grammar_vocabulary_create(const struct tokenizer *tokenizer, struct grammar_vocabulary **out,
                              struct error *err) {
    size_t vocab_size = (size_t)tokenizer_vocab_size(tokenizer);
    struct entry *entries = malloc((vocab_size + 1) * sizeof(*entries));
    struct grammar_vocabulary *vocabulary = entries != NULL ? create(tokenizer, entries) : NULL;
    free(entries);
    if (vocabulary == NULL)
        return error_set(err, ERROR_MEMORY, "memory is short for the prefix tree of %zu tokens",
                         vocab_size);
    *out = vocabulary;
    return 0;
}

void grammar_vocabulary_destroy(struct grammar_vocabulary *vocabulary) {
    if (vocabulary == NULL)
        return;
    finish_tree(&vocabulary->all);
    finish_tree(&vocabulary->others);
    free(vocabulary->plain_masks);
    free(vocabulary->quoted);
    free(vocabulary);
}
