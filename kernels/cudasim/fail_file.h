/* A failure that is ordered while the device works: QUIRE_CUDASIM_FAIL_FILE, see
 * cuda_runtime_api.h. */
#ifndef CUDASIM_FAIL_FILE_H
#define CUDASIM_FAIL_FILE_H

#include <stdint.h>

namespace cudasim {

enum class failing_work { kernel, graph_kernel, collective };

/* But for the path zeroed at first. */
struct fail_file {
    const char *path; /* nullptr: nothing is ordered ever */
    bool is_ordered;
    failing_work kind;
    uint64_t num_left; /* before it fails */
};

/* Counts what runs; returns whether it is what fails: a kernel or product, or an operation of NCCL.
 */
bool fails_next(fail_file &file, bool in_graph);
bool fails_next_collective(fail_file &file);

} // namespace cudasim

#endif
