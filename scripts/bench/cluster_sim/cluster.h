/* Replicas behind a router, in virtual time: conversations arrive, their turns are sent, steps run,
 * replicas are lost and come back. One thread; the same settings give the same results. */
#ifndef QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_CLUSTER_H
#define QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_CLUSTER_H

#include "scripts/bench/cluster_sim/event_queue.h"
#include "scripts/bench/cluster_sim/replica.h"
#include "scripts/bench/cluster_sim/results.h"
#include "scripts/bench/cluster_sim/router.h"
#include "scripts/bench/cluster_sim/trace.h"

#define CLUSTER_START_NS CLOCK_NS_PER_S /* the virtual clock's first moment */
#define CLUSTER_MAX_REPLICAS 1024

/* What happens to replica 0. Times are nanoseconds after the start; -1: never. */
struct cluster_faults {
    int64_t kill_ns;   /* its requests end without an answer; the router sends it no more */
    int64_t drain_ns;  /* the router sends it no more */
    int64_t return_ns; /* after one of these: it is there again, with an empty cache */
    int64_t retry_ns;  /* after its connection broke a client sends a request again; -1: it gives
                          up, and its conversation ends */
};

struct cluster_config {
    int32_t num_replicas;
    enum router_kind router;
    struct replica_config replica;
    struct trace_settings trace;
    int64_t num_requests; /* of all conversations together; then no more are sent */
    struct cluster_faults faults;
};

/* Read by others, written by cluster_run alone. */
struct cluster {
    struct cluster_config config;
    struct trace trace;
    struct router router;
    struct replica **replicas; /* [num_replicas] NULL: killed */
    uint32_t *lives;           /* [num_replicas] how often each one was killed or replaced */
    bool *is_stepping;         /* [num_replicas] an event of its next step is queued */
    struct event_queue events;
    struct results results;
    int64_t now_ns, last_sent_ns; /* of the last request's first time */
    int64_t num_sent;             /* requests, each once */
    struct block_key root;        /* of the keys of all prefixes */
    int32_t *prompt, *cached;     /* scratch: [max_model_len], [num_replicas] */
    struct block_key *keys;       /* scratch: [blocks + 1] of a prompt, the root first */

    /* Of all replicas that ever were, at the end. */
    uint64_t num_steps, num_step_tokens, num_preemptions;
    int64_t busy_ns;
};

/* Returns -1 when memory is short. */
int cluster_init(struct cluster *cluster, const struct cluster_config *config);
/* Runs, once, until every request that was sent has ended. */
void cluster_run(struct cluster *cluster);
void cluster_finish(struct cluster *cluster);

#endif
