/* Merges in three ways, by what a piece is: - it is a token, and merging its bytes is known to give
 * it (nine words of ten in prose): one look-up. Whether that holds is computed the first time and
 * noted in bpe->whole. - short: arrays on the stack, the best pair found by scanning. - long: a
 * heap of candidate pairs, so that a run of millions of equal characters, which is one piece, takes
 * O(n log n).
 *
 * The long way keeps one cell of 4 bytes for each symbol of the piece instead of a linked list:
 *
 * token "hel"      token "l"   token "he"   token "o wo" [id  -3  -3]     [id]        [id  -2]
 * [id  -4  <0  -4]
 *
 * The first cell of a token holds its id, the second and the last one minus its length; all cells
 * but the first are negative. So the next token and the previous one are found from the cells just
 * after and before a token's first. A heap entry is rank << 32 | position, so entries compare as
 * the rule says. Entries are not removed when their pair goes away: one is valid when the tokens at
 * its position have a merge of just that rank. */
#include "models/tokenizer/tokenizer_bpe.h"

#include "config/base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_PIECE 48
#define NO_RANK UINT32_MAX
#define DEAD INT32_MIN

enum bpe_whole { BPE_WHOLE_UNKNOWN, BPE_WHOLE_YES, BPE_WHOLE_NO };

void bpe_scratch_finish(struct bpe_scratch *scratch) {
    free(scratch->cells);
    free(scratch->heap);
    *scratch = (struct bpe_scratch){0};
}

/* The heap holds at most a pair for each neighbours and one more for each merge. Memory that is not
 * touched costs nothing, so all of it is allocated at once. */
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

/* Returns the merge of tokens[i] and tokens[i + 1], if there is one. */
static void rate_pair(const struct bpe *bpe, const int32_t *tokens, size_t i, uint32_t *ranks,
                      int32_t *merged) {
    const struct bpe_merge *merge = bpe_find_slot(bpe, tokens[i], tokens[i + 1]);
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
        const struct bpe_merge *merge = bpe_find_slot(bpe, cells[i], cells[i + 1]);
        if (merge->left >= 0)
            heap[size++] = (uint64_t)merge->rank << 32 | i;
    }
    for (size_t i = size / 4 + 1; i-- > 0;) {
        if (i < size)
            sift_down(heap, size, i);
    }
    return size;
}

/* Returns the symbols of the token that starts at `left`. */
static size_t cell_length(const int32_t *cells, size_t left, size_t n) {
    return left + 1 < n && cells[left + 1] < 0 ? (size_t)-cells[left + 1] : 1;
}

/* Pushes the merge of the tokens at left and right, neighbours, if they have one. */
static void push_pair(const struct bpe *bpe, const int32_t *cells, size_t left, size_t right,
                      uint64_t *heap, size_t *size) {
    const struct bpe_merge *merge = bpe_find_slot(bpe, cells[left], cells[right]);
    if (merge->left >= 0)
        push(heap, size, (uint64_t)merge->rank << 32 | left);
}

/* Merges cells[0..n), one token each at first; afterwards they are as drawn above. */
static void merge_long(const struct bpe *bpe, int32_t *cells, size_t n, uint64_t *heap) {
    size_t size = make_heap(bpe, cells, n, heap);
    while (size > 0) {
        uint64_t key = pop(heap, &size);
        size_t left = (uint32_t)key;
        if (cells[left] < 0)
            continue;
        size_t right = left + cell_length(cells, left, n);
        if (right >= n)
            continue;
        const struct bpe_merge *merge = bpe_find_slot(bpe, cells[left], cells[right]);
        if (merge->left < 0 || merge->rank != key >> 32)
            continue;
        size_t end = right + cell_length(cells, right, n);
        cells[right] = DEAD;
        cells[left] = merge->merged;
        cells[left + 1] = cells[end - 1] = -(int32_t)(end - left);
        if (end < n)
            push_pair(bpe, cells, left, end, heap, &size);
        if (left > 0) {
            int32_t before = cells[left - 1];
            size_t previous = before < 0 ? left - (size_t)-before : left - 1;
            push_pair(bpe, cells, previous, left, heap, &size);
        }
    }
}

static void encode_long(const struct bpe *bpe, int32_t *cells, size_t n, uint64_t *heap,
                        struct token_sink *sink) {
    merge_long(bpe, cells, n, heap);
    for (size_t i = 0; i < n; i += cell_length(cells, i, n))
        token_sink_push(sink, cells[i]);
}

/* Returns what is known about the text of a token: see bpe->whole. */
static uint8_t look_up_whole(const struct bpe *bpe, int32_t token) {
    return token < 0 ? BPE_WHOLE_NO
                     : atomic_load_explicit(&bpe->whole[token], memory_order_relaxed);
}

/* Merges symbols[0..n), n <= SHORT_PIECE, the text of `token` (-1: of none). */
static void encode_short(const struct bpe *bpe, int32_t *symbols, size_t n, int32_t token,
                         struct token_sink *sink) {
    n = merge_short(bpe, symbols, n);
    for (size_t i = 0; i < n; i++)
        token_sink_push(sink, symbols[i]);
    if (token >= 0)
        atomic_store_explicit(&bpe->whole[token],
                              n == 1 && symbols[0] == token ? BPE_WHOLE_YES : BPE_WHOLE_NO,
                              memory_order_relaxed);
}

/* --- Over bytes --- */

static int encode_bytes(const struct bpe *bpe, const char *piece, size_t length,
                        struct bpe_scratch *scratch, struct token_sink *sink) {
    int32_t token = vocabulary_find(bpe->vocabulary, piece, length);
    int32_t symbols[SHORT_PIECE];
    if ((token >= 0 && bpe->ignore_merges) || look_up_whole(bpe, token) == BPE_WHOLE_YES) {
        token_sink_push(sink, token);
        return 0;
    }
    if (length <= SHORT_PIECE) {
        encode_short(bpe, symbols, bytes_to_tokens(bpe, piece, length, symbols), token, sink);
        return 0;
    }
    if (reserve(scratch, length) != 0)
        return -1;
    size_t n = bytes_to_tokens(bpe, piece, length, scratch->cells);
    encode_long(bpe, scratch->cells, n, scratch->heap, sink);
    return 0;
}

/* --- Over characters --- */

/* A part of a piece on its way into symbols: text[0..length) has become cells[0..n). */
struct part {
    const struct bpe *bpe;
    struct bpe_scratch *scratch;
    struct token_sink *sink;
    const char *text;
    size_t length;
    size_t n;
    bool unknown; /* an unknown character is still to be written */
};

/* Outputs the tokens of the part and starts the next one after it. */
static void flush(struct part *part) {
    const struct bpe *bpe = part->bpe;
    int32_t *cells = part->scratch->cells;
    if (part->n == 1) {
        token_sink_push(part->sink, cells[0]);
    } else if (part->n > 1) {
        int32_t token = vocabulary_find(bpe->vocabulary, part->text, part->length);
        if (look_up_whole(bpe, token) == BPE_WHOLE_YES)
            token_sink_push(part->sink, token);
        else if (part->n <= SHORT_PIECE)
            encode_short(bpe, cells, part->n, token, part->sink);
        else
            encode_long(bpe, cells, part->n, part->scratch->heap, part->sink);
    }
    part->text += part->length;
    part->length = part->n = 0;
}

static void add_symbol(struct part *part, int32_t symbol) {
    int32_t *cells = part->scratch->cells;
    if (part->n > 0) {
        size_t bit = bpe_hash_pair(cells[part->n - 1], symbol) & part->bpe->joints_mask;
        if ((part->bpe->joints[bit / 64] >> bit % 64 & 1) == 0)
            flush(part);
    }
    cells[part->n++] = symbol;
}

/* Writes the unknown characters before this place. */
static void end_unknown(struct part *part) {
    if (part->unknown)
        token_sink_push(part->sink, part->bpe->unknown);
    part->unknown = false;
}

/* Adds a character without a token, or a byte that is not a character. No merge applies to what it
 * becomes. */
static void add_fallback(struct part *part, const char *character, size_t length) {
    const struct bpe *bpe = part->bpe;
    const int32_t *byte_tokens = bpe->vocabulary->byte_tokens;
    bool has_bytes = true;
    for (size_t i = 0; i < length; i++)
        has_bytes &= byte_tokens[(unsigned char)character[i]] >= 0;
    if (!has_bytes && bpe->unknown < 0) {
        part->length += length;
        return;
    }
    flush(part);
    part->text += length;
    for (size_t i = 0; has_bytes && i < length; i++)
        token_sink_push(part->sink, byte_tokens[(unsigned char)character[i]]);
    if (!has_bytes && !bpe->fuse_unknown)
        end_unknown(part);
    part->unknown |= !has_bytes;
}

static void add_character(struct part *part, const char *character, size_t length) {
    unsigned char first = (unsigned char)character[0];
    int32_t symbol = first < 128 ? part->bpe->characters[first]
                                 : vocabulary_find(part->bpe->vocabulary, character, length);
    if (symbol < 0) {
        add_fallback(part, character, length);
        return;
    }
    end_unknown(part);
    add_symbol(part, symbol);
    part->length += length;
}

static int encode_characters(const struct bpe *bpe, const char *piece, size_t length,
                             struct bpe_scratch *scratch, struct token_sink *sink) {
    int32_t token = bpe->ignore_merges ? vocabulary_find(bpe->vocabulary, piece, length) : -1;
    if (token >= 0) {
        token_sink_push(sink, token);
        return 0;
    }
    if (reserve(scratch, length) != 0)
        return -1;
    struct part part = {.bpe = bpe, .scratch = scratch, .sink = sink, .text = piece};
    for (size_t i = 0; i < length;) {
        size_t n = utf8_char_bytes(piece + i, length - i);
        n = n > 0 ? n : 1;
        add_character(&part, piece + i, n);
        i += n;
    }
    flush(&part);
    end_unknown(&part);
    return 0;
}

int bpe_encode(const struct bpe *bpe, const char *piece, size_t length, struct bpe_scratch *scratch,
               struct token_sink *sink) {
    bool bytes = bpe->vocabulary->alphabet == ALPHABET_BYTES;
    while (length > 0) {
        size_t n = length < BPE_MAX_PIECE ? length : BPE_MAX_PIECE;
        if ((bytes ? encode_bytes : encode_characters)(bpe, piece, n, scratch, sink) != 0)
            return -1;
        piece += n;
        length -= n;
    }
    return 0;
}
