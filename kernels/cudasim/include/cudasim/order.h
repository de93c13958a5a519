/* In which order threads run between two barriers, warps between two barriers of the block, and
 * blocks; and streams, while the host waits for one. A kernel without a race gives the same bits in
 * every order; floating-point atomics aside. So do streams that events order.
 *
 * forward  by index; reverse  by falling index: of two threads that race, each comes first in one
 * random:SEED  lanes, warps (after each step of a warp) and blocks at random
 *
 * forward  the stream waited for, and of others what it waits for: they run as late as they may
 * reverse  the others first, as early as events let them
 * random:SEED  piece by piece of any
 *
 * From QUIRE_CUDASIM_ORDER at the start, with these spellings; a wrong one ends the process.
 *
 * Blocks are sequential, or interleaved: up to four of a grid in flight, which take turns at
 * fences, atomics of device memory and barriers, and see each other's stores no earlier than
 * __threadfence publishes them (kernels/cudasim/visibility.h). From QUIRE_CUDASIM_BLOCKS;
 * sequential by default, as it is faster.
 * forward  the first block that comes to a fence stays there until all others have ended, then the
 *          first other that comes to an atomic
 * reverse  likewise, first one at an atomic
 * random:SEED  any, at any of these points */
#ifndef CUDASIM_ORDER_H
#define CUDASIM_ORDER_H

#ifdef __cplusplus
extern "C" {
#endif

/* 0, or -1 for a spelling that is none of the above. Holds for kernels that run from now on.
 * Each program or module that is linked with the simulator has an order of its own; a module
 * exports this function. */
__attribute__((visibility("default"))) int cudasim_set_order(const char *spelling);

/* Likewise. */
__attribute__((visibility("default"))) int cudasim_set_blocks(const char *spelling);

#ifdef __cplusplus
}
#endif

#endif
