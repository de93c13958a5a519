/* One request: a prompt, how to sample, and a stream of events. It owns `num_choices` sequences
 * inside the engine. Immutable once submitted, except for the cancel flag and the stream.
 *
 * Reference-counted: request_create gives the caller one reference, engine_submit takes one of
 * its own. The front end may drop its reference at any time (after engine_cancel if it lost
 * interest). */
#ifndef QUIRE_ENGINE_REQUEST_REQUEST_H
#define QUIRE_ENGINE_REQUEST_REQUEST_H

#include "engine/request/adapter.h"
#include "engine/request/sampling_params.h"
#include "engine/request/token_stream.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_MAX_WEIGHT 1000

/* Progress of a request's choices: nanoseconds of CLOCK_MONOTONIC; 0: not yet. Written by the
 * engine, read by anyone. */
struct request_times {
    _Atomic int64_t scheduled_ns;   /* the first choice was first part of a step */
    _Atomic int64_t first_token_ns; /* of any */
    _Atomic int64_t last_token_ns;  /* of any choice, so far */
};

/* What the front end signals to the engine while the request lives. */
enum request_signal {
    REQUEST_CANCELLED,
    REQUEST_UNREAD, /* more than TOKEN_STREAM_STALL_BYTES of events are unread */
};

#define REQUEST_OWNER_BYTES 32

struct request {
    uint64_t id; /* set by engine_submit, ascending */
    struct sampling_params params;
    int32_t *prompt; /* [num_prompt_tokens], at least 1 */
    int32_t num_prompt_tokens;
    int32_t priority; /* lower runs first; ties by arrival */
    int32_t share;    /* share that it is counted to: 0..the engine's num_shares - 1 */
    int32_t weight;   /* of the share, relative to others: 1..REQUEST_MAX_WEIGHT */
    int32_t tenant;   /* the only tenant whose prefixes it may share: >= 0 */
    uint8_t owner[REQUEST_OWNER_BYTES]; /* the tenant's, equal after a restart; see
                                           request_set_owner */
    bool has_owner;
    char *cache_salt; /* divides the tenant's prefixes further; NULL: none */
    size_t cache_salt_bytes;
    struct adapter *adapter; /* with which it is computed, a reference; NULL: none. Its prefixes are
                                shared only with requests whose adapter has the same digest */
    int64_t arrival_ns;      /* CLOCK_MONOTONIC, set by engine_submit */
    struct request_times times;
    /* The core's clock (engine: CLOCK_MONOTONIC), set before it is submitted; 0: none. */
    int64_t deadline_ns;       /* when it ends with the tokens it has */
    int64_t queue_deadline_ns; /* when it ends unless it has started running */
    struct token_stream stream;
    void *user; /* the front end's handle; the engine never reads it */

    bool reports_progress; /* reports prompt progress before the first token; set before it is
                              submitted */
    /* Between servers that share a store (server/api/call/kv_transfer.h); set before it is
     * submitted. */
    bool hands_over;         /* its full blocks are to be in the store before its first token */
    int32_t num_handed_over; /* first tokens of the prompt whose blocks another server says it has
                                stored; may be more than the prompt has */

    atomic_bool cancelled;
    atomic_int references;
    atomic_bool ready_listed; /* engine: already on the ready list */
    struct request *next;     /* engine: link in the inbox */
};

/* Copies the prompt and the arrays inside params, and reserves the memory to report that the
 * request was refused. Returns NULL when memory is short. */
struct request *request_create(const int32_t *prompt, int32_t num_prompt_tokens,
                               const struct sampling_params *params);
/* Sets whose cached prefixes the request may use and add to, before it is submitted. The salt is
 * any bytes and is copied. Returns -1 when memory is short. */
int request_set_cache_scope(struct request *request, int32_t tenant, const char *salt,
                            size_t salt_bytes);
/* Sets who else may share its prefixes where these outlive the process: requests of the same owner,
 * a hash that is equal for the same tenant in every process. Before it is submitted. */
void request_set_owner(struct request *request, const uint8_t owner[static REQUEST_OWNER_BYTES]);
/* Sets the adapter, of which it takes a reference, before it is submitted. */
void request_set_adapter(struct request *request, struct adapter *adapter);
/* Sets the share that the request is counted to, and the share's weight relative to others, before
 * the request is submitted. The defaults are share 0 and weight 1. The newest request of a share
 * sets its weight. */
void request_set_share(struct request *request, int32_t share, int32_t weight);
/* Returns the maximum memory of a waiting or running request in addition to its prompt: itself, its
 * parameters, and its unread events. Grammars and long strings are counted in the front end's
 * share. */
size_t request_max_bytes(void);
/* Any thread. */
bool request_has_signal(struct request *request, enum request_signal signal);
struct request *request_ref(struct request *request);
void request_unref(struct request *request); /* accepts NULL */

#endif
