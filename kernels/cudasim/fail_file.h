/* A failure that is ordered while the device works: QUIRE_CUDASIM_FAIL_FILE, see
 * cuda_runtime_api.h. */
#ifndef CUDASIM_FAIL_FILE_H
#define CUDASIM_FAIL_FILE_H

#include <stdint.h>

namespace cudasim {

/* But for the path zeroed at first. */
struct fail_file {
    const char *path; /* nullptr: nothing is ordered ever */
    bool is_ordered;
    bool counts_graphs; /* else what is in none */
    uint64_t num_left;  /* before it fails */
};

/* Counts a kernel or product; returns whether it is the one that fails. */
bool fails_next(fail_file &file, bool in_graph);

} // namespace cudasim

#endif
