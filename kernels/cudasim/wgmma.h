/* The asynchronous products that the warps of a block have begun. */
#ifndef CUDASIM_PRIVATE_WGMMA_H
#define CUDASIM_PRIVATE_WGMMA_H

#include "cudasim/wgmma.h"

#include <deque>
#include <vector>

namespace cudasim {

struct block_state;
struct warp_state;

const int WARPGROUP_WARPS = 4;

/* Of one warp: 16 rows of the warpgroup's. */
struct pending_product {
    site where;
    wgmma_shape shape;
    uint64_t a, b; /* descriptors; a: 0 with registers */
    unsigned group;
    float *sums[32];                 /* of each lane */
    const uint32_t *a_registers[32]; /* likewise; NULL: A is in shared memory */
    uint32_t a_values[32][4];        /* of these registers */
    std::vector<float> before; /* sums [32][num_columns / 2]; empty: those of the product before */
    /* As they lay in shared memory, row by row. */
    std::vector<uint16_t> a_elements, b_elements;
};

struct warp_products {
    std::vector<pending_product> pending; /* oldest first */
    unsigned next_group;                  /* of those that are not committed yet */
    bool is_fenced;                       /* since the last wait */
    wgmma_shape shape;                    /* of the one that lanes come to */
    uint64_t num_begun;
};

/* What one warp of a warpgroup has begun and another has not. */
struct begun_product {
    wgmma_shape shape;
    uint64_t a, b;
    int num_warps;
};
struct warpgroup_products {
    std::deque<begun_product> begun;
    uint64_t num_before; /* that all warps have begun */
};

void reset_products(warp_products *products);
/* The warp's threads have returned. */
void end_products(block_state *block, const warp_state *warp);

} // namespace cudasim

#endif
