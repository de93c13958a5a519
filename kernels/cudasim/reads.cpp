#include "cudasim/reads.h"

#include "block.h"
#include "device.h"
#include "fatal.h"

#include <string.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace cudasim {

bool reads_are_watched;
bool waits_are_left_out;
static bool are_counted;

/* One lane's. */
struct lane_read {
    uint64_t warp; /* of the grid */
    uintptr_t address;
    uint32_t bytes;
    int lane;
    bool of_weights;

    auto place() const {
        return std::make_tuple(warp, of_weights, address, bytes);
    }
    bool operator<(const lane_read &other) const {
        return place() < other.place() || (place() == other.place() && lane < other.lane);
    }
};

struct warp_reads {
    const char *kernel_name;
    lane_read first;
    uint64_t times;
};

static std::vector<lane_read> lane_reads; /* of the grid that runs */
static std::vector<warp_reads> counted;

void begin_grid_reads(bool is_early) {
    reads_are_watched = are_counted || is_early;
    waits_are_left_out = is_early && is_skipped(*the_machine().at_work, "wait_for_earlier_work");
}

void watch_read(const void *address, size_t bytes, bool of_weights) {
    if (running_thread()->is_early && !of_weights)
        fatal("reads other data than weights before wait_for_earlier_work");
    if (!are_counted)
        return;
    const dim3 &grid = current_grid.grid_dim;
    const uint3 &at = current_grid.block_index;
    const uint64_t block = ((uint64_t)at.z * grid.y + at.y) * grid.x + at.x;
    const thread_state *thread = running_thread();
    lane_reads.push_back({block * MAX_BLOCK_WARPS + (uint64_t)thread->warp->index,
                          reinterpret_cast<uintptr_t>(address), (uint32_t)bytes, thread->lane,
                          of_weights});
}

/* A place is read as often as the lane does that reads it most often. */
void end_grid_reads(const char *kernel_name) {
    reads_are_watched = false;
    std::sort(lane_reads.begin(), lane_reads.end());
    for (size_t i = 0; i < lane_reads.size();) {
        warp_reads reads = {kernel_name, lane_reads[i], 0};
        while (i < lane_reads.size() && lane_reads[i].place() == reads.first.place()) {
            uint64_t times = 0;
            for (int lane = lane_reads[i].lane;
                 i < lane_reads.size() && lane_reads[i].place() == reads.first.place() &&
                 lane_reads[i].lane == lane;
                 i++)
                times++;
            reads.times = std::max(reads.times, times);
        }
        counted.push_back(reads);
    }
    lane_reads.clear();
}

} // namespace cudasim

using namespace cudasim;

void cudasim_count_reads(void) {
    counted.clear();
    are_counted = true;
}

uint64_t cudasim_bytes_read(const char *kernel, const void *begin, size_t bytes) {
    const uintptr_t first = reinterpret_cast<uintptr_t>(begin);
    uint64_t sum = 0;
    are_counted = false;
    for (const warp_reads &reads : counted) {
        const lane_read &read = reads.first;
        const bool is_meant = begin == nullptr
                                  ? read.of_weights
                                  : read.address >= first && read.address - first < bytes;
        if (is_meant && strstr(reads.kernel_name, kernel) != nullptr)
            sum += read.bytes * reads.times;
    }
    return sum;
}
