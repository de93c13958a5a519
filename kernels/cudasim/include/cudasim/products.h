/* Misbehaving algorithms of the simulated cuBLASLt, their times, and how often it was called: for
 * tests of its caller.
 *
 * A setting is a list, separated by commas, of
 *
 *   refuse:ID:FIRST-LAST  the algorithm does not take products of FIRST to LAST columns (a
 *                         backend's rows)
 *   hide:ID:FIRST-LAST    the heuristic does not name it for them
 *   wrong:ID              it leaves out the last term of each sum
 *   coarse:ID             its sums keep 13 bits, as an H100's of 8-bit floats
 *   takes:ID:US           a product takes it US microseconds by the device's clock; of several
 *                         settings the first counts
 *   first:ID:US           its first product takes that much longer, as if its kernel were loaded
 *
 * An ID is that of CUBLASLT_ALGO_CONFIG_ID, from 0 to CUDASIM_NUM_ALGORITHMS - 1. `all` is
 * every one. Nothing is set by the empty list.
 *
 * From QUIRE_CUDASIM_PRODUCTS at the first call; a wrong one ends the process. Each program or
 * module that is linked with the simulator has settings of its own; a module exports these
 * functions. */
#ifndef CUDASIM_PRODUCTS_H
#define CUDASIM_PRODUCTS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDASIM_NUM_ALGORITHMS 12
#define CUDASIM_PRODUCT_MICROSECONDS 250 /* of each that `takes` does not name */

/* Takes the place of the setting so far: 0, or -1 for a spelling that is none. Holds for calls and
 * products from now on. */
__attribute__((visibility("default"))) int cudasim_set_products(const char *spelling);

/* Calls since the start. */
struct cudasim_product_calls {
    uint64_t heuristics, products;
};
__attribute__((visibility("default"))) struct cudasim_product_calls cudasim_count_products(void);

#ifdef __cplusplus
}
#endif

#endif
