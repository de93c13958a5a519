/* One seed's world: a server drawn at random (pools, running slots, budget, window, cache),
 * requests of all kinds with times of arrival and cancellation and ways to read, and engine_core on
 * the fake executor. */
#ifndef QUIRE_TESTS_SIM_SIMULATION_H
#define QUIRE_TESTS_SIM_SIMULATION_H

#include "engine/core/engine_core.h"
#include "engine/grammar/machine/grammar.h"
#include "engine/record/recorder.h"
#include "tests/sim/fake_drafter.h"
#include "tests/sim/fake_executor.h"
#include "tests/sim/fake_mask_workers.h"
#include "tests/sim/fake_store.h"
#include "tests/sim/flight_watch.h"
#include "tests/sim/random_request.h"
#include "tests/sim/stream_checker.h"

#include <stdbool.h>
#include <stdint.h>

#define SIMULATION_MAX_REQUESTS 24
#define SIMULATION_MAX_SEQS 24
#define SIMULATION_MAX_CHOICES (3 * SIMULATION_MAX_SEQS) /* more than there are running slots */
#define SIMULATION_TICKS_TO_STALL_OUT 40

enum reader_kind { READER_PROMPT, READER_LAZY, READER_ABSENT };

enum drafts {
    DRAFTS_NONE,
    DRAFTS_RIGHT,
    DRAFTS_WRONG,
    DRAFTS_MIXED,
    DRAFTS_NGRAM,
    DRAFTS_MODEL, /* of a draft model; n-grams for those that it cannot draft for */
};

/* Below the device. */
enum tiers { TIERS_NONE, TIERS_HOST, TIERS_STORE, TIERS_BOTH };

/* What may differ between two runs of a seed without a difference in its streams. */
struct simulation_variant {
    enum tiers tiers;
    bool async_scheduling;
    bool mask_workers; /* masks take long */
    enum drafts drafts;
    int32_t num_stages; /* of the executor; 0 means 1 */
    bool loses_ranks;   /* at random moments, and whenever a poisoned request is computed */
};

struct simulated_request {
    struct stream_checker checker;
    uint64_t scope; /* whose blocks it may share */
    int64_t arrival;
    int64_t cancel_at; /* -1: never */
    enum reader_kind reader;
    bool submitted;
    bool was_preempted;
};

/* Of what was collected. */
struct draft_counts {
    uint64_t tokens, accepted, rejected;
    uint64_t ended;            /* drafts that were accepted beyond the end of their sequence */
    uint64_t masked;           /* tokens with a grammar */
    uint64_t penalised;        /* with a penalty */
    uint64_t after_preemption; /* of a group that was preempted before */
    uint64_t in_windows;       /* beyond the first window */
    uint64_t of_model, of_model_accepted; /* of the draft model */
};

struct simulation {
    uint64_t seed;
    struct simulation_variant variant;
    int64_t now;
    int64_t stopwatch_ns; /* its last reading */
    struct random random;
    struct serving_limits limits;
    struct engine_core_config config;
    struct queue_limits queue;
    struct engine_core core;
    struct recorder *recorder; /* set by who wants one, after simulation_begin; NULL: none */
    struct executor watched;   /* the core's: checks the batch, then runs it on the fake one */
    struct fake_executor executor;
    struct grammar_vocabulary *vocabulary;
    struct fake_mask_workers mask_workers;
    struct fake_store store;
    struct fake_drafter fake_drafter;
    struct drafter *drafter; /* of the variant, or NULL */
    struct draft_counts drafts;
    struct simulated_request requests[SIMULATION_MAX_REQUESTS];
    int32_t num_requests;
    struct random loss_random, adapter_random;
    uint64_t num_loads, num_unloads_loading, num_unloads_used; /* of adapters */
    uint64_t num_rewrites;                    /* of adapters that requests may use */
    uint64_t num_adapter_hits;                /* prompts of an adapter that began in the cache */
    const struct simulated_request *poisoned; /* NULL: none */
    int32_t poison_at;                        /* the position in it that no rank survives */
    int64_t shutdown_at;                      /* -1: never */
    uint64_t next_id;
    uint64_t notified; /* pushes the core has reported */
    struct flight_watch flights;
    /* Requests of the entries that were submitted in the last step. */
    uint64_t ran[EXECUTOR_MAX_STEPS * SIMULATION_MAX_SEQS];
    int32_t num_ran;
    uint64_t front;               /* the first request in order before the step; 0: none */
    bool front_was_passed;        /* by one that the step admitted with an earlier place */
    uint64_t num_shared;          /* blocks with several owners, of each step */
    uint64_t num_dropped;         /* blocks that fell out of windows, of each step */
    uint64_t num_deferred;        /* blocks that become free after steps in flight, of each step */
    uint64_t num_ahead;           /* steps planned with another in flight */
    uint64_t num_dead_rows;       /* whose sequence had ended when they were collected */
    uint64_t num_unmasked;        /* rows whose mask was not found yet */
    uint64_t num_collected_first; /* steps not planned before others were collected */
    bool broken;
};

void simulation_begin(struct simulation *sim, uint64_t seed,
                      const struct simulation_variant *variant);
void simulation_finish(struct simulation *sim);

/* Prints the seed, the step and what is wrong, the first time. */
void simulation_fail(struct simulation *sim, const char *what, int64_t detail);
#define EXPECT(sim, condition, detail)                                                             \
    do {                                                                                           \
        if (!(condition))                                                                          \
            simulation_fail(sim, #condition, detail);                                              \
    } while (0)

/* Hands in what has arrived, cancels what is due. */
void simulation_submit(struct simulation *sim);
void simulation_read(struct simulation *sim, struct simulated_request *request);
/* Reads the streams whose readers read at this tick. */
void simulation_read_streams(struct simulation *sim);
/* Everything was submitted and has ended. */
bool simulation_is_over(const struct simulation *sim);
/* More steps than any fair schedule needs. */
int64_t simulation_step_limit(const struct simulation *sim);

#endif
