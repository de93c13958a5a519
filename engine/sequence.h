/* One timeline of tokens: a request has num_choices of them. And the group that holds a request's
 * sequences together inside the engine.
 *
 * There is no prefill or decode phase: a sequence has num_tokens tokens, of which the keys and
 * values of the first num_computed are in its blocks; the rest is pending. Once nothing is pending
 * a next token is drawn. A preempted sequence only loses its blocks and starts over at num_computed
 * = 0.
 *
 * Engine thread only. */
#ifndef QUIRE_ENGINE_SEQUENCE_H
#define QUIRE_ENGINE_SEQUENCE_H

#include "engine/kv/block_table.h"
#include "engine/detokenizer.h"
#include "engine/request.h"
#include "engine/token_counts.h"

#include <stdbool.h>
#include <stdint.h>

enum sequence_status {
    SEQUENCE_NEW,      /* not yet in the scheduler */
    SEQUENCE_WAITING,  /* holds no block */
    SEQUENCE_RUNNING,  /* has a seat */
    SEQUENCE_FINISHED, /* holds no block; lives on until its group ends */
};

struct sequence {
    struct sequence_group *group;
    int32_t choice;
    enum sequence_status status; /* written by the scheduler */
    int32_t max_tokens;          /* num_tokens never exceeds this */
    int32_t num_tokens;          /* prompt and generated */
    int32_t num_computed;
    int32_t num_planned;   /* tokens of the step being planned */
    int32_t most_computed; /* largest num_computed ever: what lies below was computed before */
    int32_t *output;       /* generated tokens */
    int32_t output_capacity;
    struct block_table table;
    struct detokenizer detokenizer;
    struct token_counts counts;    /* empty unless there is a penalty */
    struct grammar_state *grammar; /* NULL before the first draw, or without a grammar */
    float *pool;                   /* POOLING_MEAN, num_computed > 0: the sum of their states */

    enum finish_reason finish;
    bool end_pushed; /* the last event is in the stream */

    int64_t first_scheduled_ns; /* 0: never */
    int64_t first_token_ns;
    int64_t last_token_ns;

    struct sequence *previous, *next; /* in its sequence_list */
};

/* A request inside the engine. */
struct sequence_group {
    struct request *request;    /* one reference */
    struct sequence *sequences; /* [request->params.num_choices] */
    int32_t num_open;           /* sequences whose last event is not in the stream */
    int32_t num_scored;         /* prompt tokens whose scores are in the stream (by choice 0) */
    bool started;               /* some sequence was scheduled once */
    bool stalled;               /* the stream is too far unread: left out of the steps */
    int64_t stalled_since_ns;
    struct sequence_group *previous, *next; /* live groups, by arrival */
};

/* Takes its own reference. NULL when memory is short. */
struct sequence_group *sequence_group_create(struct request *request, int32_t max_model_len,
                                             int32_t block_size);
/* No sequence may hold blocks any more. Accepts NULL. */
void sequence_group_destroy(struct sequence_group *group);

/* Most tokens a sequence of the request can have. */
int32_t sequence_token_limit(const struct request *request, int32_t max_model_len);
/* Tokens whose keys and values it must be able to hold at once: a token drawn last is never fed
 * back. */
int32_t sequence_kv_limit(const struct request *request, int32_t max_model_len);

const struct sampling_params *sequence_params(const struct sequence *sequence);
int32_t sequence_token(const struct sequence *sequence, int32_t position);
int32_t sequence_num_generated(const struct sequence *sequence);
int32_t sequence_num_pending(const struct sequence *sequence);
/* True while choice 0 has prompt tokens left to score. */
bool sequence_group_is_scoring(const struct sequence_group *group);
/* May take part in a step: not stalled, and not ahead of the scores its siblings must wait for. */
bool sequence_can_run(const struct sequence *sequence);
/* Appends a generated token. Returns -1 when memory is short, or when the request's grammar does
 * not take the token. */
int sequence_append(struct sequence *sequence, int32_t token);
/* The request's grammar leaves nothing to add to the output. */
bool sequence_is_complete(const struct sequence *sequence);

/* Keeps the sum of the computed tokens' states for the step that goes on with it. Returns -1 when
 * memory is short. */
int sequence_keep_pool(struct sequence *sequence, const float *sum, int32_t hidden_size);

/* True if a is served before b: lower priority value, then arrival, then choice. A total order. */
bool sequence_before(const struct sequence *a, const struct sequence *b);

/* Sequences in that order. A zeroed struct is empty. */
struct sequence_list {
    struct sequence *first, *last;
    int32_t count;
};

/* O(1) for one that belongs at the end. */
void sequence_list_insert(struct sequence_list *list, struct sequence *sequence);
void sequence_list_remove(struct sequence_list *list, struct sequence *sequence);

#endif
