/* The finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
 * generators", OOPSLA 2014): every bit of x in every bit of the result. */
#ifndef QUIRE_SCRIPTS_PAGED_MEMORY_HASH_H
#define QUIRE_SCRIPTS_PAGED_MEMORY_HASH_H

#include <stdint.h>

static inline uint64_t hash_mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#endif
