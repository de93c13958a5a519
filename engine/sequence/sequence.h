/* One timeline of tokens: a choice of a request, or a lane of its beam search.
 *
 * There is no prefill or decode phase: a sequence has num_tokens tokens, of which the keys and
 * values of the first num_computed are in its blocks; the rest is pending. Once nothing is pending
 * a next token is drawn. A sequence preempted by recomputation only loses its blocks and starts
 * over at num_computed = 0.
 *
 * Engine thread only. */
#ifndef QUIRE_ENGINE_SEQUENCE_H
#define QUIRE_ENGINE_SEQUENCE_H

#include "engine/sequence/detokenizer.h"
#include "config/serving_limits.h"
#include "engine/kv/block_table.h"
#include "engine/kv/token_view.h"
#include "engine/request.h"
#include "engine/sequence/token_counts.h"

#include <stdbool.h>
#include <stdint.h>

struct sequence_group;

enum sequence_status {
    SEQUENCE_WAITING,  /* holds no block: not begun, to fork from a sibling, or to be recomputed */
    SEQUENCE_RUNNING,  /* takes part in steps */
    SEQUENCE_SWAPPED,  /* its blocks are in host memory */
    SEQUENCE_FINISHED, /* holds no block; lives on until its group ends */
};

struct sequence {
    struct sequence_group *group;
    const struct request *request; /* the group's */
    int32_t choice;                /* its number in the group */
    enum sequence_status status;   /* written by the scheduler */
    int32_t max_tokens;            /* num_tokens never exceeds this */
    int32_t num_tokens;            /* prompt and generated */
    int32_t num_computed;
    int32_t num_scheduled_tokens; /* tokens of the step being planned */
    bool waits_for_prefix;        /* in that step another sequence computes its next block */
    int32_t max_computed; /* largest num_computed ever: computed below it, or found before */
    int32_t *output;      /* generated tokens */
    size_t output_capacity;
    struct block_table table;
    struct detokenizer detokenizer;
    struct token_counts counts;    /* empty unless there is a penalty */
    bool has_counted_prompt;       /* the prompt's tokens are in them */
    struct grammar_state *grammar; /* NULL before the first draw, or without a grammar */
    struct thinking_state thinking;
    float *hidden_sum; /* POOLING_MEAN, num_computed > 0: the sum of their states */
    bool is_idle;      /* a lane in which no beam runs */

    enum finish_reason finish;
    bool end_pushed; /* the last event is in the stream */

    int64_t first_scheduled_ns; /* 0: never */
    int64_t first_token_ns;
    int64_t last_token_ns;
};

/* Most tokens a sequence of the request can have. */
int32_t sequence_token_limit(const struct request *request, int32_t max_model_len);
/* Tokens whose keys and values it must be able to hold at once: a token drawn last is never fed
 * back. */
int32_t sequence_kv_limit(const struct request *request, int32_t max_model_len);

const struct sampling_params *sequence_params(const struct sequence *sequence);
int32_t sequence_num_prompt(const struct sequence *sequence);
int32_t sequence_token(const struct sequence *sequence, int32_t position);
struct token_view sequence_tokens(const struct sequence *sequence);
int32_t sequence_num_generated(const struct sequence *sequence);
int32_t sequence_num_pending(const struct sequence *sequence);
/* Tokens at the start of both that are equal. */
int32_t sequence_common_tokens(const struct sequence *a, const struct sequence *b);

/* Before the first draw: takes the prompt's tokens into the counts, where a penalty asks for them.
 * What only waits in the queue thus has none. Returns -1 when memory is short; nothing can then be
 * appended. */
int sequence_count_prompt(struct sequence *sequence);
/* Appends a generated token. Returns -1 when memory is short, or was for the draw, or when the
 * request's grammar does not take the token. */
int sequence_append(struct sequence *sequence, int32_t token);
/* The generated tokens become those of another sequence of the group. Of beams only, which have
 * neither counts nor grammar. Returns -1 when memory is short. */
int sequence_copy_output(struct sequence *to, const struct sequence *from);
/* Returns what a running sequence may take, itself included. */
size_t sequence_max_bytes(const struct serving_limits *limits);
/* Frees what an ended sequence has no use for any more: all its memory but the block table's. */
void sequence_release(struct sequence *sequence);
/* The request's grammar leaves nothing to add to the output. */
bool sequence_is_complete(const struct sequence *sequence);

/* Keeps the sum of the computed tokens' states for the step that goes on with it. Returns -1 when
 * memory is short. */
int sequence_keep_hidden_sum(struct sequence *sequence, const float *sum, int32_t hidden_size);

#endif
