#include "cudasim/order.h"

#include "order.h"

#include "fatal.h"

#include <stdlib.h>
#include <string.h>

namespace cudasim {

static order_kind kind = order_kind::forward;
static uint64_t random_state;
static bool interleaved;

static bool parse_random(const char *spelling, uint64_t *out_seed) {
    const char *prefix = "random:";
    size_t length = strlen(prefix);
    if (strncmp(spelling, prefix, length) != 0 || spelling[length] < '0' || spelling[length] > '9')
        return false;
    char *end;
    *out_seed = strtoull(spelling + length, &end, 10);
    return *end == '\0';
}

void read_order_from_environment() {
    const char *spelling = getenv("QUIRE_CUDASIM_ORDER");
    if (spelling != nullptr && cudasim_set_order(spelling) != 0)
        fatal("QUIRE_CUDASIM_ORDER is \"%s\": forward, reverse or random:SEED", spelling);
    const char *blocks = getenv("QUIRE_CUDASIM_BLOCKS");
    if (blocks != nullptr && cudasim_set_blocks(blocks) != 0)
        fatal("QUIRE_CUDASIM_BLOCKS is \"%s\": sequential or interleaved", blocks);
}

order_kind current_order() {
    return kind;
}

bool are_blocks_interleaved() {
    return interleaved;
}

/* splitmix64, public domain, Sebastiano Vigna 2015. */
uint32_t random_below(uint32_t bound) {
    uint64_t x = random_state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((x >> 32) * bound >> 32);
}

int pick_bit(uint32_t mask) {
    if (kind == order_kind::forward)
        return __builtin_ctz(mask);
    if (kind == order_kind::reverse)
        return 31 - __builtin_clz(mask);
    for (uint32_t skip = random_below((uint32_t)__builtin_popcount(mask)); skip > 0; skip--)
        mask &= mask - 1;
    return __builtin_ctz(mask);
}

} // namespace cudasim

int cudasim_set_order(const char *spelling) {
    using namespace cudasim;
    uint64_t seed = 0;
    if (strcmp(spelling, "forward") == 0)
        kind = order_kind::forward;
    else if (strcmp(spelling, "reverse") == 0)
        kind = order_kind::reverse;
    else if (parse_random(spelling, &seed))
        kind = order_kind::random;
    else
        return -1;
    random_state = seed;
    return 0;
}

int cudasim_set_blocks(const char *spelling) {
    if (strcmp(spelling, "sequential") != 0 && strcmp(spelling, "interleaved") != 0)
        return -1;
    cudasim::interleaved = strcmp(spelling, "interleaved") == 0;
    return 0;
}
