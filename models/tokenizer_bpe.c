/* Three ways, by what a piece is:
 *  - it is a token, and merging its bytes is known to give it (nine words of ten in prose): one
 * look-up. Whether that holds is computed the first time and noted in bpe->whole.
 *  - short: arrays on the stack, the best pair found by scanning.
 *  - long: a heap of candidate pairs, so that a run of millions of equal characters, which is one
 *    piece, takes O(n log n).
 *
 * The long way keeps one cell of 4 bytes for each byte of the piece instead of a linked list:
 *
 *     token "hel"       token "l"   token "o w"
 *     [id  DEAD  -3]    [id]        [id  DEAD  -3]
 *
 * The first cell of a token holds its id, the last one minus its length; cells between are
 * negative. The next token starts `length of this one` cells on, the previous one is found from the
 * cell just before. A heap entry is rank << 32 | position, so entries compare as the rule says.
 * Entries are not removed when their pair goes away: one is valid when the tokens at its position
 * have a merge of just that rank. */
#include "models/tokenizer_bpe.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_PIECE 48
#define NO_RANK UINT32_MAX
#define DEAD INT32_MIN

enum bpe_whole { BPE_WHOLE_UNKNOWN, BPE_WHOLE_YES, BPE_WHOLE_NO };

static size_t hash_pair(int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9e3779b97f4a7c15u;
    return (size_t)(key ^ key >> 32);
}

/* The slot of the pair, or the free one where it belongs. */
static struct bpe_merge *find_slot(const struct bpe *bpe, int32_t left, int32_t right) {
    size_t slot = hash_pair(left, right) & bpe->mask;
    while (bpe->merges[slot].left >= 0 &&
           (bpe->merges[slot].left != left || bpe->merges[slot].right != right))
        slot = (slot + 1) & bpe->mask;
    return &bpe->merges[slot];
}

void bpe_scratch_finish(struct bpe_scratch *scratch) {
    free(scratch->cells);
    free(scratch->heap);
    *scratch = (struct bpe_scratch){0};
}

/* The heap holds at most a pair for each neighbours and one more for each merge. Memory that is not
 * touched costs nothing, so all of it is asked for at once. */
static int reserve(struct bpe_scratch *scratch, size_t length) {
    if (length <= scratch->capacity)
        return 0;
    size_t capacity = length < 4096 ? 4096 : length;
    bpe_scratch_finish(scratch);
    scratch->cells = malloc(capacity * sizeof(*scratch->cells));
    scratch->heap = malloc(2 * capacity * sizeof(*scratch->heap));
    if (scratch->cells == NULL || scratch->heap == NULL) {
        bpe_scratch_finish(scratch);
        return -1;
    }
    scratch->capacity = capacity;
    return 0;
}

/* Puts the token of each byte into cells and returns their number. */
static size_t bytes_to_tokens(const struct bpe *bpe, const char *piece, size_t length,
                              int32_t *cells) {
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        int32_t token = bpe->vocabulary->byte_tokens[(unsigned char)piece[i]];
        if (token >= 0)
            cells[n++] = token;
    }
    return n;
}

/* Candidate merge of tokens[i] and tokens[i + 1]. */
static void rate_pair(const struct bpe *bpe, const int32_t *tokens, size_t i, uint32_t *ranks,
                      int32_t *merged) {
    const struct bpe_merge *merge = find_slot(bpe, tokens[i], tokens[i + 1]);
    ranks[i] = merge->left >= 0 ? merge->rank : NO_RANK;
    merged[i] = merge->merged;
}

static size_t lowest_rank(const uint32_t *ranks, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = ranks[i] < ranks[best] ? i : best;
    return best;
}

/* Merges tokens[0..n), n <= SHORT_PIECE, in place and returns how many are left. */
static size_t merge_short(const struct bpe *bpe, int32_t *tokens, size_t n) {
    uint32_t ranks[SHORT_PIECE];
    int32_t merged[SHORT_PIECE];
    for (size_t i = 0; i + 1 < n; i++)
        rate_pair(bpe, tokens, i, ranks, merged);
    while (n > 1) {
        size_t best = lowest_rank(ranks, n - 1);
        if (ranks[best] == NO_RANK)
            break;
        tokens[best] = merged[best];
        n--;
        for (size_t i = best + 1; i < n; i++)
            tokens[i] = tokens[i + 1];
        for (size_t i = best; i + 1 < n; i++) {
            ranks[i] = ranks[i + 1];
            merged[i] = merged[i + 1];
        }
        if (best + 1 < n)
            rate_pair(bpe, tokens, best, ranks, merged);
        if (best > 0)
            rate_pair(bpe, tokens, best - 1, ranks, merged);
    }
    return n;
}

/* A heap of four children a node: shallower than a binary one, siblings in one cache line. */
static void sift_down(uint64_t *heap, size_t size, size_t i) {
    uint64_t key = heap[i];
    for (size_t child = 4 * i + 1; child < size; child = 4 * i + 1) {
        size_t end = child + 4 < size ? child + 4 : size;
        size_t least = child;
        for (size_t c = child + 1; c < end; c++)
            least = heap[c] < heap[least] ? c : least;
        if (heap[least] >= key)
            break;
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = key;
}

static void push(uint64_t *heap, size_t *size, uint64_t key) {
    size_t i = (*size)++;
    while (i > 0 && heap[(i - 1) / 4] > key) {
        heap[i] = heap[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    heap[i] = key;
}

static uint64_t pop(uint64_t *heap, size_t *size) {
    uint64_t key = heap[0];
    heap[0] = heap[--*size];
    if (*size > 1)
        sift_down(heap, *size, 0);
    return key;
}

static size_t make_heap(const struct bpe *bpe, const int32_t *cells, size_t n, uint64_t *heap) {
    size_t size = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const struct bpe_merge *merge = find_slot(bpe, cells[i], cells[i + 1]);
        if (merge->left >= 0)
            heap[size++] = (uint64_t)merge->rank << 32 | i;
    }
    for (size_t i = size / 4 + 1; i-- > 0;) {
        if (i < size)
            sift_down(heap, size, i);
    }
    return size;
}

/* The tokens at left and right, neighbours: pushes their merge, if they have one. */
static void push_pair(const struct bpe *bpe, const int32_t *cells, size_t left, size_t right,
                      uint64_t *heap, size_t *size) {
    const struct bpe_merge *merge = find_slot(bpe, cells[left], cells[right]);
    if (merge->left >= 0)
        push(heap, size, (uint64_t)merge->rank << 32 | left);
}

/* Merges cells[0..n), one token each at first; afterwards they are as drawn above. */
static void merge_long(const struct bpe *bpe, int32_t *cells, size_t n, uint64_t *heap) {
    const struct vocabulary *vocabulary = bpe->vocabulary;
    size_t size = make_heap(bpe, cells, n, heap);
    while (size > 0) {
        uint64_t key = pop(heap, &size);
        size_t left = (uint32_t)key;
        if (cells[left] < 0)
            continue;
        size_t right = left + vocabulary_length(vocabulary, cells[left]);
        if (right >= n)
            continue;
        const struct bpe_merge *merge = find_slot(bpe, cells[left], cells[right]);
        if (merge->left < 0 || merge->rank != key >> 32)
            continue;
        size_t end = left + vocabulary_length(vocabulary, merge->merged);
        cells[right] = DEAD;
        cells[left] = merge->merged;
        cells[end - 1] = -(int32_t)(end - left);
        if (end < n)
            push_pair(bpe, cells, left, end, heap, &size);
        if (left > 0) {
            int32_t before = cells[left - 1];
            size_t previous = before < 0 ? left - (size_t)-before : left - 1;
            push_pair(bpe, cells, previous, left, heap, &size);
        }
    }
}

static int encode_long(const struct bpe *bpe, const char *piece, size_t length,
                       struct bpe_scratch *scratch, struct token_sink *sink) {
    if (reserve(scratch, length) != 0)
        return -1;
    int32_t *cells = scratch->cells;
    size_t n = bytes_to_tokens(bpe, piece, length, cells);
    merge_long(bpe, cells, n, scratch->heap);
    for (size_t i = 0; i < n; i += vocabulary_length(bpe->vocabulary, cells[i]))
        token_sink_push(sink, cells[i]);
    return 0;
}

static size_t encode_short(const struct bpe *bpe, const char *piece, size_t length,
                           struct token_sink *sink) {
    int32_t tokens[SHORT_PIECE];
    size_t n = merge_short(bpe, tokens, bytes_to_tokens(bpe, piece, length, tokens));
    for (size_t i = 0; i < n; i++)
        token_sink_push(sink, tokens[i]);
    return n;
}

static int encode_slice(const struct bpe *bpe, const char *piece, size_t length,
                        struct bpe_scratch *scratch, struct token_sink *sink) {
    int32_t token = vocabulary_find(bpe->vocabulary, piece, length);
    uint8_t whole = BPE_WHOLE_NO;
    if (token >= 0)
        whole = bpe->ignore_merges ? BPE_WHOLE_YES
                                   : atomic_load_explicit(&bpe->whole[token], memory_order_relaxed);
    if (whole == BPE_WHOLE_YES) {
        token_sink_push(sink, token);
        return 0;
    }
    if (length > SHORT_PIECE)
        return encode_long(bpe, piece, length, scratch, sink);
    size_t n = encode_short(bpe, piece, length, sink);
    if (whole == BPE_WHOLE_UNKNOWN)
        atomic_store_explicit(&bpe->whole[token], n == 1 ? BPE_WHOLE_YES : BPE_WHOLE_NO,
                              memory_order_relaxed);
    return 0;
}

int bpe_encode(const struct bpe *bpe, const char *piece, size_t length, struct bpe_scratch *scratch,
               struct token_sink *sink) {
    while (length > 0) {
        size_t n = length < BPE_MAX_PIECE ? length : BPE_MAX_PIECE;
        if (encode_slice(bpe, piece, n, scratch, sink) != 0)
            return -1;
        piece += n;
        length -= n;
    }
    return 0;
}

static int check_merges(const struct metadata *merges, struct error *err) {
    const char *key = "tokenizer.ggml.merges";
    if (merges == NULL)
        return error_set(err, ERROR_MODEL, "%s is missing", key);
    if (merges->type != METADATA_ARRAY ||
        (merges->as_array.element_type != METADATA_STRING && merges->as_array.count > 0))
        return error_set(err, ERROR_MODEL, "%s is not an array of strings", key);
    if (merges->as_array.count > BPE_MAX_MERGES)
        return error_set(err, ERROR_MODEL, "%s has %llu elements, allowed are %d", key,
                         (unsigned long long)merges->as_array.count, BPE_MAX_MERGES);
    return 0;
}

/* Adds merge number `rank`. `buffer` has room for two tokens. */
static int add_merge(struct bpe *bpe, struct text text, uint32_t rank, char *buffer,
                     struct error *err) {
    const struct vocabulary *v = bpe->vocabulary;
    const char *space = text.length == 0 ? NULL : memchr(text.data, ' ', text.length);
    size_t left_length = space == NULL ? 0 : (size_t)(space - text.data);
    size_t right_length = space == NULL ? 0 : text.length - left_length - 1;
    if (left_length == 0 || right_length == 0 || memchr(space + 1, ' ', right_length) != NULL)
        return error_set(err, ERROR_MODEL,
                         "tokenizer.ggml.merges[%u] is not two tokens with a space between", rank);
    if (text.length > 2 * VOCABULARY_MAX_TOKEN_BYTES)
        return error_set(err, ERROR_MODEL,
                         "tokenizer.ggml.merges[%u] has %zu bytes, allowed are %d", rank,
                         text.length, 2 * VOCABULARY_MAX_TOKEN_BYTES);
    int64_t a = vocabulary_decode((struct text){text.data, left_length}, buffer);
    int64_t b = a < 0 ? -1 : vocabulary_decode((struct text){space + 1, right_length}, buffer + a);
    int32_t left = b < 0 ? -1 : vocabulary_find_any(v, buffer, (size_t)a);
    int32_t right = b < 0 ? -1 : vocabulary_find_any(v, buffer + a, (size_t)b);
    int32_t merged = b < 0 ? -1 : vocabulary_find_any(v, buffer, (size_t)(a + b));
    if (left < 0 || right < 0 || merged < 0)
        return error_set(err, ERROR_MODEL,
                         "tokenizer.ggml.merges[%u]: its %s is not in tokenizer.ggml.tokens", rank,
                         left < 0    ? "left token"
                         : right < 0 ? "right token"
                                     : "result");
    if (vocabulary_is_text(v, left) && vocabulary_is_text(v, right) &&
        vocabulary_is_text(v, merged))
        *find_slot(bpe, left, right) = (struct bpe_merge){left, right, rank, merged};
    return 0;
}

static int add_merges(struct bpe *bpe, const struct metadata *merges, struct error *err) {
    char *buffer = malloc(2 * VOCABULARY_MAX_TOKEN_BYTES);
    if (buffer == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the merges of a tokenizer");
    int status = 0;
    for (uint64_t i = 0; status == 0 && i < merges->as_array.count; i++)
        status = add_merge(bpe, metadata_array_string(merges, i), (uint32_t)i, buffer, err);
    free(buffer);
    return status;
}

int bpe_init(const struct tensor_file *file, const struct vocabulary *vocabulary,
             bool ignore_merges, struct bpe *out, struct error *err) {
    const struct metadata *merges = tensor_file_find_metadata(file, "tokenizer.ggml.merges");
    if (check_merges(merges, err) != 0)
        return -1;
    size_t num_slots = 64;
    while (num_slots * 3 / 4 < merges->as_array.count)
        num_slots *= 2;
    struct bpe bpe = {.vocabulary = vocabulary, .mask = num_slots - 1};
    bpe.ignore_merges = ignore_merges;
    bpe.merges = malloc(num_slots * sizeof(*bpe.merges));
    bpe.whole = calloc((size_t)vocabulary->size, sizeof(*bpe.whole));
    int status = 0;
    if (bpe.merges == NULL || bpe.whole == NULL)
        status = error_set(err, ERROR_MEMORY, "no memory for %llu merges",
                           (unsigned long long)merges->as_array.count);
    for (size_t i = 0; status == 0 && i < num_slots; i++)
        bpe.merges[i] = (struct bpe_merge){.left = -1};
    if (status != 0 || add_merges(&bpe, merges, err) != 0) {
        bpe_finish(&bpe);
        return -1;
    }
    *out = bpe;
    return 0;
}

void bpe_finish(struct bpe *bpe) {
    free(bpe->merges);
    free((void *)bpe->whole);
    *bpe = (struct bpe){0};
}
