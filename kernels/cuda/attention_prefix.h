/* Which sequences of a step begin with the same blocks, so that attention reads these once for
 * several of them (cascade attention: Hydragen, Juravsky et al. 2024; FlashInfer, Ye et al. 2025).
 * Plain C, no device.
 *
 * A PREFIX is a range of the context that some sequences have in common: each decodes one token,
 * sees all of the range, and has it in full blocks of the same numbers, which nobody writes any
 * more. Prefixes may be nested: sequences with one system prompt, and of these such as also have
 * one document. A range that would cost more than it saves is left to the sequences themselves. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_PREFIX_H
#define QUIRE_KERNELS_CUDA_ATTENTION_PREFIX_H

#include "kernels/backend.h"
#include "kernels/cuda/attention_launch.h"

/* Prefixes that a sequence may have, one behind the other. */
#define ATTENTION_MAX_PREFIXES 2

/* What layers of one kind have in common. */
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
    struct attention_prefix *found; /* in order of `first`, one before those that go on from it */
    int32_t *sequences;  /* [num_seqs] of the step, those with a prefix in common side by side */
    int32_t *own_begins; /* [num_seqs] by sequence: tokens in its prefixes */
    /* Private, of `sequences` that are told apart: */
    int32_t *slots;    /* of a hash table: a class, or none */
    int32_t *class_of; /* [max_seqs] */
    int32_t *keys;     /* [max_seqs] of each class */
    int32_t *counts;   /* [max_seqs] of each class */
    int32_t *moved;    /* [max_seqs] */
};

/* For steps of so many sequences at most; never allocates again. 0, or -1 when out of memory. */
int attention_prefixes_init(struct attention_prefixes *prefixes, int32_t max_seqs);
/* Accepts zeroed ones. */
void attention_prefixes_finish(struct attention_prefixes *prefixes);

/* None: the sequences in order, and nothing in common. */
void attention_prefixes_none(struct attention_prefixes *prefixes, const struct step_inputs *step);
void attention_prefixes_find(struct attention_prefixes *prefixes, const struct step_inputs *step,
                             const struct attention_shape *shape);

/* Tiles that read a prefix of so many sequences, for each KV head. */
int32_t attention_prefix_tiles(int32_t num_sequences, int32_t group);

/* Whether it pays that num_sequences attend to num_tokens together. In tokens of one KV head that
 * are read:
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
