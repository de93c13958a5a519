/* A server of the cluster: the engine's core with its scheduler, block manager and prefix cache, as
 * they are in `quire serve`, on a virtual executor. What a server adds, HTTP and tokenising, is
 * left out. */
#ifndef QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_REPLICA_H
#define QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_REPLICA_H

#include "engine/core/engine_core.h"
#include "scripts/bench/cluster_sim/cost_model.h"
#include "scripts/bench/cluster_sim/trace.h"
#include "scripts/bench/cluster_sim/virtual_executor.h"

/* A request and what came of it so far; the owner's, and at most one replica's at a time. */
struct call {
    struct conversation conversation; /* as of the end of this turn */
    struct turn turn;
    int64_t sent_ns; /* first */
    int32_t num_sent;
    int32_t replica;

    /* Of the last time it was sent. */
    struct request *request;
    int64_t first_token_ns, last_token_ns;
    int32_t num_tokens; /* of the answer */
    int32_t num_cached_tokens;
    bool has_ended;
    struct call *next, *previous; /* of the replica's */
};

struct replica_config {
    const struct simulated_device *device; /* outlives the replica */
    bool prefix_caching;
    struct block_key_secret secret; /* the same of all replicas */
};

struct replica {
    struct engine_core core;
    struct virtual_executor executor;
    uint64_t next_id;
    struct call *first_call, *last_call; /* sent and not ended */
    struct call **ready;                 /* [num_ready] of which the core has news; may repeat */
    size_t num_ready, ready_capacity;
    struct token_buffer events; /* being read */
};

/* Returns NULL when memory is short. */
struct replica *replica_create(const struct replica_config *config);
/* Ends what it computes. Returns the calls that had not ended, linked by `next`; they can be sent
 * elsewhere. Accepts NULL. */
struct call *replica_destroy(struct replica *replica);
/* Returns the key before the first block of every prompt. */
struct block_key replica_prefix_root(const struct replica_config *config);

/* Sends the call: it takes part in steps that begin from now on. Returns -1 when memory is short.
 */
int replica_send(struct replica *replica, struct call *call, int64_t now_ns);
/* Plans and submits what it can at now_ns, and runs to the end of the oldest step: *end_ns. Returns
 * false when there was nothing to do. Before that moment nobody may look at what came of it. */
bool replica_step(struct replica *replica, int64_t now_ns, int64_t *end_ns);
/* Brings calls up to the end of the last step. Returns those that have ended, linked by `next`,
 * which are not the replica's any more. */
struct call *replica_take_ended(struct replica *replica);
/* Returns the tokens of the prompt that its prefix cache has. keys: of its num_blocks full blocks,
 * after the root's. Looks for the end of the cached blocks by bisection: a chain loses its last
 * blocks first. */
int32_t replica_cached_tokens(const struct replica *replica, const int32_t *prompt,
                              const struct block_key *keys, int32_t num_blocks);

#endif
