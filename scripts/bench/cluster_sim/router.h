/* Chooses the replica of each request, by what a gateway knows: which replicas take requests, how
 * many requests each one has that have not ended, and whose conversation it is. */
#ifndef QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_ROUTER_H
#define QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_ROUTER_H

#include "scripts/bench/cluster_sim/hash_ring.h"

/* What a replica may have of the mean of requests before the next ones go elsewhere:
 * hash-balance-factor 200 of config/haproxy/quire.cfg. */
#define ROUTER_LOAD_FACTOR 2

enum router_kind {
    ROUTER_ROUND_ROBIN, /* each in turn */
    ROUTER_LEAST,       /* the fewest requests; in turn among equals */
    ROUTER_AFFINITY,    /* by the conversation, consistent hashing with bounded loads */
    ROUTER_PREFIX, /* the longest cached prefix among those that are not above the bound, then as
                        LEAST: what a router does that follows KV events */
    NUM_ROUTERS
};

struct router {
    enum router_kind kind;
    int32_t num_replicas;
    bool *is_open;        /* [num_replicas] takes requests */
    int32_t *num_waiting; /* [num_replicas] requests sent to it that have not ended */
    int32_t num_open;
    int64_t total_waiting; /* of open ones */
    int32_t next;          /* whose turn it is */
    struct hash_ring ring;
};

/* Returns "round-robin", "least", "affinity", "prefix". */
const char *router_name(enum router_kind kind);

/* All are open. Returns -1 when memory is short. */
int router_init(struct router *router, enum router_kind kind, int32_t num_replicas);
void router_finish(struct router *router); /* accepts a zeroed one */

/* Returns the replica for a request of that conversation; -1: none is open. cached: [num_replicas]
 * how many of the prompt's tokens each one has in its prefix cache; read by ROUTER_PREFIX alone. */
int32_t router_choose(struct router *router, uint64_t conversation, const int32_t *cached);
/* Notes that a request was sent to the replica, or ended there. */
void router_sent(struct router *router, int32_t replica);
void router_ended(struct router *router, int32_t replica);
/* Opens or closes a replica to new requests. */
void router_set_open(struct router *router, int32_t replica, bool is_open);

#endif
