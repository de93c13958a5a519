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
    /* What it refers to outlives the engine. 0 tenants mean 1; a stall_timeout_ns of 0 means 10 s.
     * Not read, because the engine sets them: the secret of prefixes, the fields about masks and
     * the queue, and the callbacks. */
    struct engine_core_config core;
    /* Limits of one share; with several shares, the limit of all together is twice that
     * (schedule/queue_limits.h). */
    int32_t max_queued_requests; /* requests not yet running */
    int64_t max_queued_tokens;   /* prompt tokens not yet running */
    int64_t max_choices;         /* unfinished choices of all requests; 0: any number */
    int64_t sleep_idle_ms;  /* without a request before it sleeps by itself; 0: never. Only if the
                               executor can (engine_can_sleep) */
    struct kv_store *store; /* of the executor's blocks, below the prefix cache. Outlives the engine
                               and calls it; NULL: none */
    struct recorder *recorder;   /* outlives the engine, whose thread alone calls it; NULL: none */
    void (*wake)(void *context); /* called by the engine thread, at most once per step, when the
                                    ready list became non-empty; must not block */
    void *wake_context;
    /* Where the thread writes what it is doing, as a constant text, so that a hang can be reported.
     * Outlives the engine; may be NULL. */
    _Atomic(const char *) *activity;
};

enum submit_result {
    SUBMIT_OK,
    SUBMIT_QUEUE_FULL, /* 429 */
    SUBMIT_TOO_LARGE,  /* kv_demand_of exceeds engine_limits: 400 */
    SUBMIT_STOPPING,   /* 503 */
    SUBMIT_ASLEEP,     /* 503: it was put to sleep */
    SUBMIT_NO_ADAPTER, /* 404: the request's adapter is not ADAPTER_READY any more */
    SUBMIT_FAILED,     /* the device failed: 503 */
};

/* Starts the thread. The executor and the tokenizer outlive the engine. */
int engine_create(const struct engine_config *config, struct executor *executor,
                  const struct tokenizer *tokenizer, struct engine **out, struct error *err);

/* Returns an upper bound of the host memory that the engine takes, without its executor: what is
 * allocated at start, the queue and its prompts, the running sequences and the unread streams, all
 * at their largest. Grammars and stop strings are counted with their requests, in the front end's
 * share. */
size_t engine_memory_bytes(const struct engine_config *config, const struct tokenizer *tokenizer);

/* Any thread. Returns the limits of a request. */
const struct serving_limits *engine_limits(const struct engine *engine);
/* Any thread. Takes its own reference on SUBMIT_OK. request->tenant >= 0, and
 * request->share < num_shares. */
enum submit_result engine_submit(struct engine *engine, struct request *request);
/* Any thread. Returns whether the queue has no room for any request at all. */
bool engine_queue_is_full(struct engine *engine);
/* Any thread. Returns how many requests of the share (struct request) wait to run. */
int64_t engine_num_queued(const struct engine *engine, int32_t share);
/* Any thread. The request's sequences are dropped and their blocks freed before the next step; each
 * unfinished choice gets a last event with FINISH_ABORT. */
void engine_cancel(struct engine *engine, struct request *request);
/* Any thread; called before the engine ends. Lost ranks are no longer waited for, so that cancelled
 * requests end at once. */
void engine_stop_restarting(struct engine *engine);

/* Any thread. Requests submitted afterwards find no prefix in the cache that was complete before,
 * but for what a store has, unless that forgets it, too. Running requests keep what they share and
 * are not disturbed. */
void engine_flush_cache(struct engine *engine, bool with_store);

/* Any thread. Writes the keys of the full blocks of the prompt (prompt tokens / block size), under
 * which the store has them; returns their number. */
int32_t engine_list_keys(const struct engine *engine, const struct request *request,
                         struct block_key *out);

/* Any thread. Loads an adapter, which is ADAPTER_NEW and fits executor_config.lora, into a free
 * slot: each step writes a piece of it, so that none takes longer than a piece does, and steps
 * without tokens do if nothing runs. `wake` is called when it is ADAPTER_READY. Returns -1 when no
 * slot is free. An engine that was put to sleep loads it when it is awake again; one that has
 * fallen asleep by itself wakes up. Takes a reference on success. */
int engine_load_adapter(struct engine *engine, struct adapter *adapter);
/* Any thread. From now on no request with it is accepted; once those before have ended it is
 * ADAPTER_GONE, and `wake` is called. One that is loading becomes so at once. Nothing happens to
 * others. A sleeping engine does it when it is awake again. */
void engine_unload_adapter(struct engine *engine, struct adapter *adapter);

/* Returns whether the engine can sleep. It cannot with ranks on other machines. */
bool engine_can_sleep(const struct engine *engine);
/* Any thread; only if engine_can_sleep. From now on no request is accepted. When all accepted ones
 * have ended, the executor gives back its memory: that of the KV blocks, which empties the prefix
 * cache, and with discards_weights the weights too. The configuration's `wake` is called once it
 * sleeps. If it already sleeps by itself (sleep_idle_ms: with its weights), it stays asleep from
 * now on; if it sleeps with its weights, it gives those back too if requested. Returns false and
 * changes nothing while it is waking, or when it sleeps without weights and is asked to keep them.
 * Writes the resulting state. */
bool engine_sleep(struct engine *engine, bool discards_weights, struct engine_rest_view *out);
/* Any thread. Requests submitted from now on run once the executor has its memory again. `wake` is
 * called when it has it, or cannot get it: then the engine is asleep again, requests submitted
 * meanwhile have ended with FINISH_ASLEEP, and the log says why. engine_submit does the same when
 * the engine has fallen asleep by itself. Writes the resulting state. */
void engine_wake(struct engine *engine, struct engine_rest_view *out);
/* Any thread. Returns whether it sleeps, or is about to, because of engine_sleep: engine_submit
 * returns SUBMIT_ASLEEP until engine_wake. */
bool engine_is_put_to_sleep(struct engine *engine);
/* Any thread. */
struct engine_rest_view engine_get_rest(struct engine *engine);

/* Front end. Moves up to capacity requests with unread events into out; each comes with a reference
 * that the caller drops. Returns their number. Call it until it returns less than capacity. */
int engine_take_ready(struct engine *engine, struct request **out, int capacity);

/* Front end, after reading a stream: lets a stalled request run again. Cheap when none is
 * stalled. */
void engine_resume_reading(struct engine *engine);

void engine_get_stats(struct engine *engine, struct engine_stats *out);
/* Returns true once a device failure stopped the engine: all requests ended with FINISH_ERROR. */
bool engine_has_failed(struct engine *engine);
/* Returns what failed, once engine_has_failed returns true; it never changes. */
struct error engine_failure(struct engine *engine);

/* Refuses new requests from now on (SUBMIT_STOPPING); those accepted before continue. */
void engine_stop_accepting(struct engine *engine);
/* Returns true when nothing is queued or running. */
bool engine_is_idle(struct engine *engine);
/* Aborts the remaining requests, ends the thread and frees the engine. Accepts NULL. */
void engine_destroy(struct engine *engine);

#endif
