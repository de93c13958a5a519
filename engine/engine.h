/* The engine: one thread that owns all scheduling and KV state, fed through an inbox.
 *
 * The front end submits requests, learns through `wake` that some have pending events, collects
 * those with engine_take_ready, and reads their streams. Nothing here waits for a client. */
#ifndef QUIRE_ENGINE_ENGINE_H
#define QUIRE_ENGINE_ENGINE_H

#include "config/base/error.h"
#include "engine/core/engine_core.h"
#include "engine/stats/engine_stats.h"
#include "engine/executor/executor.h"
#include "engine/schedule/kv_demand.h"
#include "engine/request/request.h"
#include "models/tokenizer/tokenizer.h"

struct engine;
struct recorder;

struct engine_config {
    /* What it refers to outlives the engine. No tenants mean one, no stall_timeout_ns means 10 s.
     * Not read, as the engine sets them: the secret of prefixes, what is about masks and the queue,
     * and the callbacks. */
    struct engine_core_config core;
    /* Of one share; with several shares twice as many in all (schedule/queue_limits.h). */
    int32_t max_queued_requests; /* requests not yet running */
    int64_t max_queued_tokens;   /* prompt tokens not yet running */
    int64_t max_choices;         /* of all requests, that have not ended; 0: any number */
    int64_t sleep_idle_ms;       /* without a request, until it sleeps by itself; 0: never. Of an
                                  executor that can (engine_can_sleep) */
    struct recorder *recorder;   /* outlives the engine, whose thread alone calls it; NULL: none */
    void (*wake)(void *context); /* called by the engine thread at most once per step, when the
                                    ready list turned non-empty; must not block */
    void *wake_context;
    /* Where the thread writes what it does, a constant text, for whoever must say where it hangs;
     * outlives the engine. NULL: nobody asks. */
    _Atomic(const char *) *activity;
};

enum submit_result {
    SUBMIT_OK,
    SUBMIT_QUEUE_FULL, /* 429 */
    SUBMIT_TOO_LARGE,  /* kv_demand_of exceeds engine_limits: 400 */
    SUBMIT_STOPPING,   /* 503 */
    SUBMIT_ASLEEP,     /* 503: it was put to sleep */
    SUBMIT_FAILED,     /* the device failed: 503 */
};

/* Starts the thread. The executor and the tokenizer outlive the engine. */
int engine_create(const struct engine_config *config, struct executor *executor,
                  const struct tokenizer *tokenizer, struct engine **out, struct error *err);

/* Returns an upper bound of what the engine takes of the system's memory, apart from its executor:
 * what is allocated at start, the queue and its prompts, the sequences that run and the streams
 * nobody has read yet, all at their largest. Grammars and stop strings count with the requests that
 * bring them, in the front end's share. */
size_t engine_memory_bytes(const struct engine_config *config, const struct tokenizer *tokenizer);

/* Any thread. Returns what a request may take at most. */
const struct serving_limits *engine_limits(const struct engine *engine);
/* Any thread. Takes its own reference on SUBMIT_OK. request->tenant >= 0, and
 * request->share < num_shares. */
enum submit_result engine_submit(struct engine *engine, struct request *request);
/* Any thread. Returns whether no request at all would be taken for want of room in the queue. */
bool engine_queue_is_full(struct engine *engine);
/* Any thread. Returns how many requests of the share (struct request) wait to run. */
int64_t engine_num_queued(const struct engine *engine, int32_t share);
/* Any thread. The request's sequences are dropped and their blocks freed before the next step; each
 * unfinished choice gets a last event with FINISH_ABORT. */
void engine_cancel(struct engine *engine, struct request *request);
/* Any thread; before the engine ends. Ranks that are lost are not waited for any more, so that what
 * is cancelled ends at once. */
void engine_stop_restarting(struct engine *engine);

/* Any thread. Requests submitted after it find no prefix in the cache that was complete before;
 * those that run keep what they share and are not disturbed. */
void engine_flush_cache(struct engine *engine);

/* Returns whether it can sleep: not with ranks in processes of other machines. */
bool engine_can_sleep(const struct engine *engine);
/* Any thread; of one that can. From now on nothing is taken; when all that was taken has ended, the
 * executor gives its memory back: that of the KV blocks, which the prefix cache then knows nothing
 * of, and with discards_weights the weights too. `wake` of the configuration is called when it
 * sleeps. One that sleeps by itself (sleep_idle_ms: with its weights) sleeps on from now on; one
 * that has its weights gives them back as well where that is requested. Returns false, and nothing
 * happens, while it wakes, and where it sleeps without weights and is to have them. Writes what it
 * has come to. */
bool engine_sleep(struct engine *engine, bool discards_weights, struct engine_rest_view *out);
/* Any thread. What is submitted from now on runs once the executor has its memory again. `wake` is
 * called when it has, or cannot have it: it is asleep again then, what was submitted meanwhile has
 * ended with FINISH_ASLEEP, and the log says why. engine_submit does the same where the engine
 * has fallen asleep by itself. Writes what it has come to. */
void engine_wake(struct engine *engine, struct engine_rest_view *out);
/* Any thread. Returns whether it sleeps, or is about to, by engine_sleep: SUBMIT_ASLEEP until
 * engine_wake. */
bool engine_is_put_to_sleep(struct engine *engine);
/* Any thread. */
struct engine_rest_view engine_get_rest(struct engine *engine);

/* Front end. Moves up to capacity requests that have unread events into out; each comes with a
 * reference the caller drops. Returns their number; call until it returns less than capacity. */
int engine_take_ready(struct engine *engine, struct request **out, int capacity);

/* Front end, after reading a stream: lets a stalled request run again. Cheap when none is. */
void engine_resume_reading(struct engine *engine);

void engine_get_stats(struct engine *engine, struct engine_stats *out);
/* Returns true once a device failure stopped the engine: all requests ended with FINISH_ERROR. */
bool engine_has_failed(struct engine *engine);
/* Returns what failed, once engine_has_failed; it never changes. */
struct error engine_failure(struct engine *engine);

/* Refuses new work from now on (SUBMIT_STOPPING); what is in flight continues. */
void engine_stop_accepting(struct engine *engine);
/* Returns true when nothing is queued or running. */
bool engine_is_idle(struct engine *engine);
/* Aborts what is left, ends the thread, frees. Accepts NULL. */
void engine_destroy(struct engine *engine);

#endif
