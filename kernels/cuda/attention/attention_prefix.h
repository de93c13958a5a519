/* Which sequences of a step begin with the same blocks, so that attention reads these once for
 * several of them (cascade attention: Hydragen, Juravsky et al. 2024; FlashInfer, Ye et al. 2025).
 * Plain C, no device.
 *
 * A PREFIX is a range of the context that several sequences share: each decodes one token, sees all
 * of the range, and has it in full blocks with the same ids, which nobody writes any more, in every
 * group of layers: one plan serves those of several groups. Prefixes
 * may be nested: sequences with the same system prompt, some of which also share a document. A
 * range that would cost more than it saves is left to the individual sequences. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_PREFIX_H
#define QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_PREFIX_H

#include "kernels/backend.h"
#include "kernels/cuda/attention/attention_launch.h"

/* Maximum number of consecutive prefixes of a sequence. */
#define ATTENTION_MAX_PREFIXES 2

/* Shared by the layers of one kind. */
struct attention_shape {
    int32_t num_kv_heads;
    int32_t group;      /* query heads per KV head */
    int32_t window;     /* 0: none */
    int32_t block_size; /* of the cache, in tokens */
    bool batch_invariant;
};

struct attention_prefix {
    int32_t first; /* of attention_prefixes.sequences */
    int32_t num_sequences;
    int32_t kv_begin, kv_end; /* multiples of ATTENTION_KV_TILE */
};

struct attention_prefixes {
    int32_t num_found;
    struct attention_prefix *found; /* in order of `first`, each before those that extend it */
    int32_t *sequences;  /* [num_seqs] of the step, those that share a prefix next to each other */
    int32_t *own_begins; /* [num_seqs] by sequence: tokens in its prefixes */
    /* Private, for telling `sequences` apart: */
    int32_t *slots;    /* of a hash table: a class, or none */
    int32_t *class_of; /* [max_seqs] */
    int32_t *keys;     /* [max_seqs] of each class */
    int32_t *counts;   /* [max_seqs] of each class */
    int32_t *moved;    /* [max_seqs] */
};

/* Allocates for steps of at most max_seqs sequences; never allocates again. Returns 0, or -1 when
 * memory is short. */
int attention_prefixes_init(struct attention_prefixes *prefixes, int32_t max_seqs);
/* Accepts zeroed ones. */
void attention_prefixes_finish(struct attention_prefixes *prefixes);

/* Sets no prefixes: the sequences in order, sharing nothing. */
void attention_prefixes_none(struct attention_prefixes *prefixes, const struct step_inputs *step);
void attention_prefixes_find(struct attention_prefixes *prefixes, const struct step_inputs *step,
                             const struct attention_shape *shape);

/* Returns the number of tiles per KV head that read a prefix of that many sequences. */
int32_t attention_prefix_tiles(int32_t num_sequences, int32_t group);

/* Returns whether it pays for num_sequences to attend to num_tokens together. Costs in tokens of
 * one KV head that are read:
 *   saved  num_tokens for each of the `num_readers` that read them otherwise, single sequences or
 *          tiles of those with a longer prefix, less those of the prefix's tiles
 *   spent  ATTENTION_KV_TILE for each of the tiles (attention_plan.c: what an item costs besides)
 *          ATTENTION_PART_TOKENS for each row of partial results: one of the prefix, and of a
 *          sequence's first prefix one of its own range, for each query head
 * A row of partial results is head_dim floats, written and read: 8 head_dim bytes. A token of K and
 * V is 2 head_dim bytes at least, in 8 bits. */
#define ATTENTION_PART_TOKENS 4
bool attention_prefix_pays(int32_t num_tokens, int32_t num_sequences, int32_t num_readers,
                           int32_t group, bool is_first);

#endif
