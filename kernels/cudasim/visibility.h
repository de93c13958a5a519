/* What each block of a grid sees of the device's memory while several are in flight. A store is the
 * block's own until one of its threads comes to a __threadfence, and if none does, until the grid
 * ends: other blocks see the bytes that were there before. And a block that has begun sees what
 * others publish from its own next __threadfence on. Atomics see and change at once what all share.
 *
 * Kernels store with plain instructions. So memory is write-protected while a block runs; the first
 * store to a page faults, and when the block is left, or comes to a fence, the bytes of such pages
 * that have changed are what it stored. A store of the value that was there is not seen. */
#ifndef CUDASIM_VISIBILITY_H
#define CUDASIM_VISIBILITY_H

#include "device.h"

#include <map>
#include <vector>

namespace cudasim {

typedef std::vector<char> page;

struct stored_page {
    page values;
    page is_stored; /* by byte */
};

/* By address of the page. */
struct block_view {
    std::map<uintptr_t, stored_page> stores; /* that are its own */
    std::map<uintptr_t, page> stale;         /* as they were at its last fence, if they changed */
};

/* Of a grid of the device at work, in the thread that runs it. */
void begin_visibility(device &dev);
void end_visibility();

/* Memory is as this block sees it, from here until it is left. */
void enter_view(block_view *view);
/* `ends`: for good. */
void leave_view(bool ends);

} // namespace cudasim

#endif
