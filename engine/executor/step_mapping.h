/* The memory of the steps that the engine's process and the rank process share: two files, of which
 * the first holds the batches of all steps and the second their results. Both processes map the files
 * so that each step is one piece of memory as step_memory_bind wants it.
 *
 * The rank process can write to the results alone: a stray write to a batch is a SIGSEGV there, and
 * the first file is sealed against any mapping that could be written to (memfd_create(2),
 * F_SEAL_FUTURE_WRITE), so that what the engine reads back from its own batches is what it wrote.
 * Neither file can be made shorter, which would be a SIGBUS for the other. */
#ifndef QUIRE_ENGINE_EXECUTOR_STEP_MAPPING_H
#define QUIRE_ENGINE_EXECUTOR_STEP_MAPPING_H

#include "config/base/error.h"
#include "models/batch.h"

#include <stddef.h>
#include <stdint.h>

/* Descriptors of the two; -1: none. */
struct step_files {
    int batches, results;
};

struct step_mapping {
    char *memory; /* of EXECUTOR_MAX_STEPS steps, one behind the other; NULL: none */
    size_t batch_bytes, result_bytes; /* of one step, whole pages */
};

/* Creates both files, empty, under numbers from min_fd on and closed by exec. */
int step_files_create(struct step_files *out, int min_fd, struct error *err);
void step_files_close(struct step_files *files); /* accepts numbers that are -1 */

/* For the engine's process, once: gives the files their size and seals, and maps both to be written
 * to. -1 when memory is short or the system refuses. */
int step_mapping_create(struct step_mapping *mapping, const struct batch_capacity *capacity,
                        const struct step_files *files);
/* For the rank process: maps the batches to be read and the results to be written to. */
int step_mapping_open(struct step_mapping *mapping, const struct batch_capacity *capacity,
                      const struct step_files *files);
void step_mapping_finish(struct step_mapping *mapping); /* accepts a zeroed one */

/* Returns the memory of a step; the step whose memory an address lies in. */
void *step_mapping_step(const struct step_mapping *mapping, int32_t step);
int32_t step_mapping_find(const struct step_mapping *mapping, const void *address);

#endif
