/* What the ranks of one executor have in common: what they start from, the number of blocks that
 * each of them gets, and how they are described together. Called by one thread, while none of the
 * ranks runs. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_SETUP_H
#define QUIRE_ENGINE_EXECUTOR_RANK_SETUP_H

#include "engine/executor/rank.h"
#include "engine/executor/rank_agreement.h"

#include <sched.h>

/* The model and the configuration outlive the setup. loads: creates a reader of the weights too.
 * ERROR_CONFIG when the device or the model cannot be divided this way; errors of
 * weights_reader_create. */
int rank_setup_init(struct rank_setup *out, const struct model *model,
                    const struct executor_config *config, bool loads, struct error *err);
/* Frees what was needed to load. Called once every rank is open. */
void rank_setup_loaded(struct rank_setup *setup);
void rank_setup_finish(struct rank_setup *setup); /* every rank is closed */

/* Where a rank computes. */
struct rank_place {
    bool is_bound;
    cpu_set_t cpus;      /* if is_bound */
    int32_t num_threads; /* 0, only for a single rank: one per core */
};

/* Returns the place of a rank. If a machine has at least as many NUMA nodes as there are ranks,
 * each rank gets its own nodes, so that it computes on the memory that it touches first. If a
 * number of threads was requested, it is divided among the ranks, at least one each. Otherwise a
 * rank gets as many as its nodes have cores, or else its share of the available cores. */
struct rank_place rank_setup_place(const struct rank_setup *setup, int32_t rank);
/* Describes the place for people: the machine of a process, the cores to which a thread is bound.
 * out: [EXECUTOR_PLACE_BYTES]. */
void rank_setup_describe_place(const struct rank_setup *setup, const struct rank_place *place,
                               char *out);

/* Chooses the length of a sequence if it is open: the longest, in whole blocks and up to
 * most_model_len, for which the KV cache has room for one sequence. What depends on the length is
 * planned with it. The libraries of a GPU that is filled take more than is planned: a tenth of the
 * blocks is left to them, and at least 1/32 of its memory. */
int rank_setup_choose_length(const struct rank_setup *setup, struct rank *ranks, struct error *err);
/* Plans everything for sequences of this length. */
int rank_setup_set_length(struct rank *ranks, int32_t num_ranks, int32_t max_model_len,
                          struct error *err);

/* Chooses the numbers of blocks, for ranks that were opened or loaded, and stores them in the
 * limits of each, with the bytes that they take. Every rank holds the part of a block that belongs
 * to its heads and layers, so all have the same number. A length that was chosen, or with
 * which the weights were loaded, is kept. Planned weights must fit the system's memory
 * (ERROR_MEMORY). Other errors are those of sizing.h. */
int rank_setup_choose_blocks(struct rank *ranks, int32_t num_ranks, struct error *err);

/* Stores other numbers than those that were chosen. */
void rank_setup_set_blocks(struct rank *ranks, int32_t num_ranks, int32_t num_blocks,
                           int32_t num_host_blocks);

/* Describes the ranks, which are open or planned, and have their blocks. */
void rank_setup_describe(const struct rank *ranks, int32_t num_ranks, struct executor_info *out);

/* Adds what is known of the ranks in other processes to the description of the local ones. */
void rank_setup_describe_all(const struct rank_decision *decision, int32_t num_ranks,
                             struct executor_info *info);

#endif
