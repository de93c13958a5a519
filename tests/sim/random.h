/* A small generator of random numbers, the same on every machine. */
#ifndef QUIRE_TESTS_SIM_RANDOM_H
#define QUIRE_TESTS_SIM_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift
 * generators, scrambled", 2016). The state is never 0. */
struct random {
    uint64_t state;
};

struct random random_from(uint64_t seed);
uint64_t random_next(struct random *random);
/* low..high, both included. */
int32_t random_range(struct random *random, int32_t low, int32_t high);
/* True once in n times. */
bool random_once_in(struct random *random, int32_t n);

#endif
