/* Numbers that look random and follow from a seed (Steele, Lea and Flood, "Fast Splittable
 * Pseudorandom Number Generators", 2014). */
#ifndef QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_MIX_H
#define QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_MIX_H

#include <stdint.h>

/* Returns a hash of the number. */
static inline uint64_t mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

/* Returns the next number of a generator, whose state is any number. */
static inline uint64_t mix_next(uint64_t *state) {
    uint64_t number = mix(*state);
    *state += 0x9e3779b97f4a7c15U;
    return number;
}

#endif
