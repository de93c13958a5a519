#include "scripts/bench/cluster_sim/router.h"

#include "config/base/check.h"

#include <stdlib.h>

const char *router_name(enum router_kind kind) {
    static const char *const names[NUM_ROUTERS] = {"round-robin", "least", "affinity", "prefix"};
    return names[kind];
}

int router_init(struct router *router, enum router_kind kind, int32_t num_replicas) {
    *router = (struct router){
        .kind = kind,
        .num_replicas = num_replicas,
        .num_open = num_replicas,
        .is_open = calloc((size_t)num_replicas, sizeof(*router->is_open)),
        .num_waiting = calloc((size_t)num_replicas, sizeof(*router->num_waiting)),
    };
    if (router->is_open == NULL || router->num_waiting == NULL ||
        hash_ring_init(&router->ring, num_replicas) != 0) {
        router_finish(router);
        return -1;
    }
    for (int32_t i = 0; i < num_replicas; i++)
        router->is_open[i] = true;
    return 0;
}

void router_finish(struct router *router) {
    free(router->is_open);
    free(router->num_waiting);
    hash_ring_finish(&router->ring);
    *router = (struct router){0};
}

/* --- Choosing --- */

/* Rounded up, with the request that is to be sent: as HAProxy's chash_server_is_eligible. */
static bool is_below_bound(const void *context, int32_t replica) {
    const struct router *router = context;
    int64_t all = ROUTER_LOAD_FACTOR * (router->total_waiting + 1);
    int64_t bound = (all + router->num_open - 1) / router->num_open;
    return router->is_open[replica] && router->num_waiting[replica] < bound;
}

static bool is_better(const struct router *router, int32_t a, int32_t b, const int32_t *cached) {
    if (cached != NULL && cached[a] != cached[b])
        return cached[a] > cached[b];
    return router->num_waiting[a] < router->num_waiting[b];
}

/* Returns the best of those that take requests, the first in turn among equals. */
static int32_t find_best(const struct router *router, const int32_t *cached) {
    int32_t best = -1;
    for (int32_t i = 0; i < router->num_replicas; i++) {
        int32_t replica = (router->next + i) % router->num_replicas;
        bool takes = cached != NULL ? is_below_bound(router, replica) : router->is_open[replica];
        if (takes && (best < 0 || is_better(router, replica, best, cached)))
            best = replica;
    }
    return best;
}

static int32_t find_next(const struct router *router) {
    int32_t replica = router->next;
    while (!router->is_open[replica])
        replica = (replica + 1) % router->num_replicas;
    return replica;
}

int32_t router_choose(struct router *router, uint64_t conversation, const int32_t *cached) {
    int32_t chosen = -1;
    if (router->num_open == 0)
        return -1;
    switch (router->kind) {
    case ROUTER_ROUND_ROBIN:
        chosen = find_next(router);
        break;
    case ROUTER_LEAST:
        chosen = find_best(router, NULL);
        break;
    case ROUTER_AFFINITY:
        chosen = hash_ring_find(&router->ring, conversation, is_below_bound, router);
        break;
    case ROUTER_PREFIX:
        chosen = find_best(router, cached);
        break;
    case NUM_ROUTERS:
        break;
    }
    CHECK(chosen >= 0);
    router->next = (chosen + 1) % router->num_replicas;
    return chosen;
}

/* --- What it knows --- */

void router_sent(struct router *router, int32_t replica) {
    router->num_waiting[replica]++;
    router->total_waiting += router->is_open[replica];
}

void router_ended(struct router *router, int32_t replica) {
    CHECK(router->num_waiting[replica] > 0);
    router->num_waiting[replica]--;
    router->total_waiting -= router->is_open[replica];
}

void router_set_open(struct router *router, int32_t replica, bool is_open) {
    if (router->is_open[replica] == is_open)
        return;
    int32_t sign = is_open ? 1 : -1;
    router->is_open[replica] = is_open;
    router->num_open += sign;
    router->total_waiting += sign * router->num_waiting[replica];
}
