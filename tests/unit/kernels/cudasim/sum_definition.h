/* A tensor core's sum by its definition (kernels/cudasim/tensor_core.h), in double, which is exact
 * here. */
#ifndef CUDASIM_SUM_DEFINITION_H
#define CUDASIM_SUM_DEFINITION_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* The float plus one chunk of products. */
static inline float define_sum(float sum, const double *products, size_t count) {
    double largest = fabs((double)sum), total;
    for (size_t k = 0; k < count; k++)
        largest = fmax(largest, fabs(products[k]));
    if (largest == 0)
        return 0;
    double unit = ldexp(1, ilogb(largest) - 24);
    total = trunc(sum / unit);
    for (size_t k = 0; k < count; k++)
        total += trunc(products[k] / unit);
    if (total == 0)
        return 0;
    double float_unit = ldexp(1, ilogb(total) - 23);
    return (float)(trunc(total / float_unit) * float_unit * unit);
}

/* Number i of a series of all signs, of magnitudes from 1/64 to 32, with eight bits, as of bf16. */
static inline float varied_number(size_t i, uint32_t salt) {
    uint32_t x = ((uint32_t)i + 1) * 2654435761U ^ salt * 40503U;
    x = (x ^ x >> 15) * 2246822519U;
    x ^= x >> 13;
    float magnitude = ldexpf((float)(128 + x % 128), (int)(x >> 8) % 11 - 13);
    return x >> 31 ? -magnitude : magnitude;
}

#endif
