#include "scripts/bench/cluster_sim/hash_ring.h"

#include "scripts/bench/cluster_sim/mix.h"

#include <stdlib.h>

#define KEY_SALT UINT64_C(0x6b6579) /* keys and replicas are hashed differently */

static int compare_places(const void *a, const void *b) {
    const struct ring_place *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return (x->replica > y->replica) - (x->replica < y->replica);
}

int hash_ring_init(struct hash_ring *ring, int32_t num_replicas) {
    int32_t count = num_replicas * HASH_RING_PLACES;
    *ring = (struct hash_ring){.places = calloc((size_t)count, sizeof(*ring->places)),
                               .num_places = count};
    if (ring->places == NULL)
        return -1;
    for (int32_t i = 0; i < count; i++)
        ring->places[i] =
            (struct ring_place){.hash = mix((uint64_t)i), .replica = i / HASH_RING_PLACES};
    qsort(ring->places, (size_t)count, sizeof(*ring->places), compare_places);
    return 0;
}

void hash_ring_finish(struct hash_ring *ring) {
    free(ring->places);
    *ring = (struct hash_ring){0};
}

static int32_t first_place(const struct hash_ring *ring, uint64_t hash) {
    int32_t low = 0, high = ring->num_places;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (ring->places[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int32_t hash_ring_find(const struct hash_ring *ring, uint64_t key,
                       bool (*takes)(const void *context, int32_t replica), const void *context) {
    int32_t first = first_place(ring, mix(key ^ mix(KEY_SALT)));
    for (int32_t i = 0; i < ring->num_places; i++) {
        int32_t replica = ring->places[(first + i) % ring->num_places].replica;
        if (takes(context, replica))
            return replica;
    }
    return -1;
}
