/* Consistent hashing (Karger et al., 1997) with bounded loads (Mirrokni, Thorup, Zadimoghaddam,
 * "Consistent Hashing with Bounded Loads", 2016): a key belongs to the first replica at or after
 * its place on a ring that takes it. */
#ifndef QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_HASH_RING_H
#define QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_HASH_RING_H

#include <stdbool.h>
#include <stdint.h>

/* Places of a replica on the ring: as many as HAProxy gives a server of weight 1 with `hash-type
 * consistent`. */
#define HASH_RING_PLACES 16

struct ring_place {
    uint64_t hash;
    int32_t replica;
};

struct hash_ring {
    struct ring_place *places; /* [num_places] rising */
    int32_t num_places;
};

/* Returns -1 when memory is short. */
int hash_ring_init(struct hash_ring *ring, int32_t num_replicas);
void hash_ring_finish(struct hash_ring *ring); /* accepts a zeroed one */

/* Returns the first replica from the key's place on that `takes`, or -1: none does. */
int32_t hash_ring_find(const struct hash_ring *ring, uint64_t key,
                       bool (*takes)(const void *context, int32_t replica), const void *context);

#endif
