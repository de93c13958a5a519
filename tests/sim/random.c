#include "tests/sim/random.h"

struct random random_from(uint64_t seed) {
    struct random random = {seed * UINT64_C(0x9e3779b97f4a7c15) + UINT64_C(0x632be59bd9b4e019)};
    random.state += random.state == 0;
    for (int i = 0; i < 4; i++)
        random_next(&random);
    return random;
}

uint64_t random_next(struct random *random) {
    uint64_t x = random->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    random->state = x;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

int32_t random_range(struct random *random, int32_t low, int32_t high) {
    return low + (int32_t)((random_next(random) >> 16) % (uint64_t)(high - low + 1));
}

bool random_once_in(struct random *random, int32_t n) {
    return random_range(random, 1, n) == 1;
}
