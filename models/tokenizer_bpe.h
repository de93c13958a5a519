/* Byte-pair merging of one piece of text, over a byte-level vocabulary.
 *
 * The piece starts as one token per byte; again and again the neighbours whose merge has the lowest
 * rank, the leftmost of equals, become one token, until no neighbours have a merge. This is the
 * `BPE` model of Hugging Face's tokenizers, without dropout, prefix or suffix. A byte that has no
 * token is left out, as there when the model has no unk_token.
 *
 * Immutable after init and shared by threads, but for a memo that is written atomically. */
#ifndef QUIRE_MODELS_TOKENIZER_BPE_H
#define QUIRE_MODELS_TOKENIZER_BPE_H

#include "config/error.h"
#include "models/tensor_file.h"
#include "models/vocabulary.h"

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
    bool ignore_merges; /* a piece that is a token becomes it, whatever the merges say */
    /* [vocabulary->size] what merging the bytes of a token gives: 0 not known yet, else enum
     * bpe_whole. Filled as texts are encoded; any thread computes the same value. */
    _Atomic uint8_t *whole;
};

/* Where tokens go: all are counted, the first `capacity` are written. */
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

/* Reads `tokenizer.ggml.merges`. A merge is "left right", both tokens and their concatenation in
 * the vocabulary: anything else is refused, as by Hugging Face. Of equal merges the last counts, as
 * there. A merge of or to a control, unknown or unused token is left out, so that no text becomes
 * one. The vocabulary outlives *out. */
int bpe_init(const struct tensor_file *file, const struct vocabulary *vocabulary,
             bool ignore_merges, struct bpe *out, struct error *err);
/* Accepts a zeroed struct. */
void bpe_finish(struct bpe *bpe);

/* Appends the tokens of piece[0..length), any bytes. Time is O(length log length). Returns -1 when
 * memory is short. */
int bpe_encode(const struct bpe *bpe, const char *piece, size_t length, struct bpe_scratch *scratch,
               struct token_sink *sink);

#endif
