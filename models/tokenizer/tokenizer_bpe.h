/* Byte-pair merging of one piece of text, over a vocabulary of bytes or of characters.
 *
 * The piece starts as one symbol per byte or character; repeatedly the neighbours whose merge has
 * the lowest rank (the leftmost of equals) become one token, until no neighbours have a merge. This
 * is the `BPE` model of Hugging Face's tokenizers, without dropout, prefix or suffix.
 *
 * A byte without a token is left out. A character without a token becomes the tokens of its bytes
 * if the model has byte_fallback and they exist, otherwise the unknown token, otherwise nothing;
 * with fuse_unknown, neighbouring unknown characters are one token.
 *
 * Immutable after init and shared by threads, except for a memo that is written atomically. */
#ifndef QUIRE_MODELS_TOKENIZER_TOKENIZER_BPE_H
#define QUIRE_MODELS_TOKENIZER_TOKENIZER_BPE_H

#include "config/base/error.h"
#include "models/tokenizer/tokenizer_spec.h"
#include "models/tokenizer/vocabulary.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BPE_MAX_MERGES (1 << 22)
/* A longer piece is merged in slices of this length. */
#define BPE_MAX_PIECE ((size_t)1 << 30)

struct bpe_merge {
    int32_t left; /* -1: free slot */
    int32_t right;
    uint32_t rank;
    int32_t merged;
};

struct bpe {
    const struct vocabulary *vocabulary;
    struct bpe_merge *merges; /* [mask + 1] open addressing by (left, right) */
    size_t mask;
    bool ignore_merges; /* a piece that is a token becomes it, regardless of merges */
    bool fuse_unknown;
    int32_t unknown;         /* -1: none */
    int32_t characters[128]; /* tokens of ASCII characters, -1: none */
    /* Over characters: a bit for the hash of two symbols that some merge joins across. A piece is
     * cut between symbols that no merge joins, so that a text without a pre-tokenizer becomes many
     * words. */
    uint64_t *joints;
    size_t joints_mask;
    /* [vocabulary->size] the result of merging the bytes of a token: 0: not known yet, otherwise
     * enum bpe_whole. Filled as texts are encoded; any thread computes the same value. */
    _Atomic uint8_t *whole;
};

/* Takes tokens: all are counted, the first `capacity` are written. */
struct token_sink {
    int32_t *out;
    size_t capacity;
    size_t count;
};

static inline void token_sink_push(struct token_sink *sink, int32_t token) {
    if (sink->count < sink->capacity)
        sink->out[sink->count] = token;
    sink->count++;
}

/* Memory for long pieces, grown on demand and kept for the next piece. Start zeroed. */
struct bpe_scratch {
    size_t capacity; /* bytes of a piece it has room for */
    int32_t *cells;
    uint64_t *heap;
};

void bpe_scratch_finish(struct bpe_scratch *scratch);

/* Reads the merges of spec, or derives them from its scores. Both tokens of a merge and their
 * concatenation are in the vocabulary: anything else is refused, as by Hugging Face. Of equal
 * merges the last counts, as there. A merge from or to a control, unknown, unused or byte token is
 * left out, so that no text becomes one. The vocabulary outlives *out. */
int bpe_init(const struct tokenizer_spec *spec, const struct vocabulary *vocabulary,
             struct bpe *out, struct error *err);
/* Accepts a zeroed struct. */
void bpe_finish(struct bpe *bpe);

static inline size_t bpe_hash_pair(int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9e3779b97f4a7c15u;
    return (size_t)(key ^ key >> 32);
}

/* Returns the slot of the pair, or the free slot where it belongs. */
static inline struct bpe_merge *bpe_find_slot(const struct bpe *bpe, int32_t left, int32_t right) {
    size_t slot = bpe_hash_pair(left, right) & bpe->mask;
    while (bpe->merges[slot].left >= 0 &&
           (bpe->merges[slot].left != left || bpe->merges[slot].right != right))
        slot = (slot + 1) & bpe->mask;
    return &bpe->merges[slot];
}

/* Appends the tokens of piece[0..length), any bytes. Time is O(length log length). Returns -1 when
 * memory is short. */
int bpe_encode(const struct bpe *bpe, const char *piece, size_t length, struct bpe_scratch *scratch,
               struct token_sink *sink);

#endif
