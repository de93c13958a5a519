/* Counters of the engine, copied whole by engine_get_stats; the front end renders them. */
#ifndef QUIRE_ENGINE_STATS_ENGINE_STATS_H
#define QUIRE_ENGINE_STATS_ENGINE_STATS_H

#include "config/serving_limits.h"
#include "engine/request/token_stream.h"
#include "kernels/backend.h"

#include <stdbool.h>
#include <stdint.h>

#define HISTOGRAM_MAX_BUCKETS 32

/* What a rank has done since it was started. */
struct rank_stats {
    int64_t compute_ns;       /* in steps, except for communication */
    int64_t communication_ns; /* with the other ranks, including waiting for them */
    uint64_t bytes_sent;      /* to the other ranks, in messages of collective ops; threads of one
                                 process send none */
};

/* counts[i]: observations <= bounds[i] and > bounds[i-1]; the last one is above all bounds. */
struct histogram {
    const double *bounds;
    int num_bounds;
    uint64_t counts[HISTOGRAM_MAX_BUCKETS + 1];
    double sum;
    uint64_t total;
};

void histogram_add(struct histogram *histogram, double value);
/* Subtracts what was observed until an earlier time. */
void histogram_subtract(struct histogram *from, const struct histogram *earlier);
/* Returns the quantile (0 to 1), with values spread evenly in a bucket as in PromQL's
 * histogram_quantile; NaN: nothing was observed. */
double histogram_quantile(const struct histogram *histogram, double quantile);

/* Parts of the engine thread's time for a step. Together they are all of it, except the time while
 * nothing can run; with two steps in flight, their parts are interleaved. */
enum step_part {
    /* Before the plan: counters and tokens of the last step are published, new requests taken,
     * cancelled ones ended. */
    STEP_PART_LOOP,
    STEP_PART_SCHEDULE, /* planning, and noting what is in flight */
    STEP_PART_BUILD,    /* the arrays of the batch, late inputs too */
    STEP_PART_LAUNCH,   /* the executor's submit and supply; its own threads continue from there */
    STEP_PART_WAIT,     /* blocked in the executor's wait */
    STEP_PART_COMMIT,   /* results applied, tokens pushed into their streams */
    NUM_STEP_PARTS,
};

/* Returns the part's name as in metrics: "schedule". */
const char *step_part_name(enum step_part part);

/* Whether the executor has its memory (engine_sleep). */
enum engine_rest {
    ENGINE_AWAKE,
    ENGINE_FALLING_ASLEEP, /* once accepted requests have ended */
    ENGINE_ASLEEP,
    ENGINE_WAKING,
};

/* Whether it sleeps, and how often since the start it reached a state that somebody may wait for;
 * it may have left that state since. */
struct engine_rest_view {
    enum engine_rest rest;
    uint64_t num_slept; /* times that it has fallen asleep */
    uint64_t num_woken;
    uint64_t num_wake_failures; /* it slept on */
};

/* Of sleep that began because there were no requests (engine_config.sleep_idle_ms), since the
 * start. */
struct engine_idle_stats {
    uint64_t num_sleeps;
    uint64_t num_wakes;
    uint64_t num_wake_failures; /* it slept on */
    double wake_seconds;        /* of num_wakes: from the request that ended the sleep */
};

/* Requests whose blocks were handed over between servers (engine/request/request.h), in one
 * direction. Tokens in full blocks of prompts. */
struct handover_stats {
    uint64_t num_requests;
    uint64_t num_tokens;
    uint64_t num_missing_tokens; /* not stored in time, or not found and computed */
};

struct engine_stats {
    /* now */
    enum engine_rest rest;
    bool discards_weights; /* asleep, or soon: without weights */
    bool is_idle_sleep;    /* not awake, by itself: the next request ends that */
    int32_t num_running;   /* sequences */
    int32_t num_waiting;   /* sequences, the inbox included */
    int32_t num_swapped;   /* sequences, of the waiting ones, whose blocks are in the host pool */
    bool has_work; /* work that does not wait for clients to read their streams, or for masks */
    bool is_restarting;        /* the ranks were lost and are being started again */
    int32_t block_size;        /* tokens; never changes */
    int32_t num_blocks;        /* of the pool */
    int32_t num_used_blocks;   /* held by at least one sequence */
    int32_t num_cached_blocks; /* held by no sequence, but found again by a prompt that begins with
                                  them */
    int32_t num_known_blocks;  /* held or not, found by such a prompt */
    int32_t num_host_blocks;   /* of the host pool */
    int32_t num_used_host_blocks; /* of those */
    int32_t num_kept_blocks;      /* of the host pool: their content can be found */
    int64_t num_held_tokens; /* tokens whose keys and values the used blocks hold; those of a block
                                that several sequences share count once */
    int32_t num_speculative_tokens; /* maximum per sequence and step; never changes */
    int32_t num_mask_jobs;          /* masks that take long, being found for a grammar each */
    uint64_t step;                  /* steps done; progress for health checks */
    int64_t last_step_ns;           /* CLOCK_MONOTONIC at the end of the last step */

    struct engine_idle_stats idle;

    int32_t num_ranks; /* whose numbers follow; 0: not known */
    struct rank_stats ranks[BACKEND_MAX_RANKS];

    bool is_recording;       /* see recorder.h */
    uint64_t recorded_bytes; /* since start */

    /* since start, of speculation */
    uint64_t num_drafts;          /* steps of a sequence that had drafted tokens */
    uint64_t num_draft_tokens;    /* in them */
    uint64_t num_accepted_tokens; /* of those */
    uint64_t num_accepted_at[MAX_SPECULATIVE_TOKENS]; /* [i]: of those at position i of a draft */

    /* since start */
    uint64_t prompt_tokens; /* computed, recomputation after preemption not counted */
    uint64_t generation_tokens;
    uint64_t prefix_queries;        /* prompt tokens looked up in the prefix cache */
    uint64_t prefix_hits;           /* of them: found */
    uint64_t preemptions;           /* sequences */
    uint64_t preemptions_swap;      /* of them: their blocks went to the host pool */
    uint64_t preemptions_recompute; /* of them: their blocks were given up */
    uint64_t swapped_out_blocks;
    uint64_t swapped_in_blocks;
    uint64_t kept_blocks;                   /* copied to the host for a tier below the device */
    uint64_t promoted_blocks;               /* that came back from there */
    uint64_t evicted_kept_blocks;           /* that the host lost */
    uint64_t stored_reads;                  /* blocks that came from the store */
    struct handover_stats handed_over;      /* to other servers */
    struct handover_stats taken_over;       /* from other servers */
    uint64_t rank_restarts;                 /* of ranks that were lost */
    uint64_t copied_blocks;                 /* a shared one was written to */
    uint64_t jump_forward_tokens;           /* tokens forced by grammars, which no step sampled */
    uint64_t mask_jobs;                     /* jobs that found masks that take long */
    double mask_job_seconds;                /* total duration of these jobs */
    uint64_t finished[FINISH_ERROR + 1];    /* sequences by finish reason */
    struct histogram time_to_first_token;   /* seconds */
    struct histogram inter_token_latency;   /* seconds */
    struct histogram time_per_output_token; /* seconds, per request */
    struct histogram e2e_latency;           /* seconds */
    struct histogram queue_time;            /* seconds */
    struct histogram inference_time;        /* seconds, first scheduled to finished */
    struct histogram prefill_time;          /* seconds, first scheduled to first token */
    struct histogram decode_time;           /* seconds, first token to finished */
    struct histogram request_prompt_tokens;
    struct histogram request_generation_tokens;
    struct histogram request_max_generation_tokens; /* of the choice with the most */
    struct histogram request_cached_tokens;         /* of the prompt */
    struct histogram request_computed_tokens;       /* of the prompt: the others */
    struct histogram request_max_tokens;
    struct histogram request_n;
    struct histogram iteration_tokens;
    /* Seconds, once for each step done: how long the executor had no step before this one though
     * requests could run. It begins when the wait for the previous step returns with no other in
     * flight, and ends when submit has returned; 0 when another step was in flight, or there was
     * nothing to run. This is the host's view: a device may have finished long before the host
     * noticed, even with another step in flight, and may begin before or after submit returns. */
    struct histogram step_gap;
    struct histogram step_host[NUM_STEP_PARTS]; /* seconds, of each step done */
};

/* Zeroes *stats and sets every histogram's bounds (those of vLLM if it has the metric, so that its
 * dashboards work). */
void engine_stats_init(struct engine_stats *stats);

/* Counts a step of a sequence that had num_tokens > 0 drafted ones, of which the first num_accepted
 * were accepted. */
void engine_stats_add_draft(struct engine_stats *stats, int32_t num_tokens, int32_t num_accepted);

/* Returns how many sequences have finished, for any reason. */
uint64_t engine_stats_num_finished(const struct engine_stats *stats);

#endif
