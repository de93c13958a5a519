/* What the ranks of one executor have in common: what they start from, the number of blocks that
 * every one of them gets, and what is said of them together. Called by one thread, while none of
 * the ranks runs. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_SETUP_H
#define QUIRE_ENGINE_EXECUTOR_RANK_SETUP_H

#include "engine/executor/rank.h"
#include "engine/executor/rank_agreement.h"

#include <sched.h>

/* The model and the configuration outlive the setup. loads: with a reader of the weights.
 * ERROR_CONFIG when the device or the model cannot be shared out so; errors of
 * weights_reader_create. */
int rank_setup_init(struct rank_setup *out, const struct model *model,
                    const struct executor_config *config, bool loads, struct error *err);
/* Every rank is open: gives up what was needed to load. */
void rank_setup_loaded(struct rank_setup *setup);
void rank_setup_finish(struct rank_setup *setup); /* every rank is closed */

/* Where a rank computes. */
struct rank_place {
    bool is_bound;
    cpu_set_t cpus;      /* where is_bound */
    int32_t num_threads; /* 0, of one rank only: one per core */
};

/* Where a machine has as many NUMA nodes as there are ranks, or more, each rank gets nodes of its
 * own, so that it computes on the memory that it touches first. The threads that were requested are
 * shared out, one each at least; when none were, those of its nodes, else of the cores at hand. */
struct rank_place rank_setup_place(const struct rank_setup *setup, int32_t rank);
/* Describes it for people: the machine of a process, the cores to which a thread is bound. out:
 * [EXECUTOR_PLACE_BYTES]. */
void rank_setup_describe_place(const struct rank_setup *setup, const struct rank_place *place,
                               char *out);

/* Chooses the length of a sequence where it is open: the longest up to most_model_len of which the
 * KV cache has room for one, by the block, with what depends on the length planned. The libraries
 * of a GPU that is filled take more than is planned: a tenth of the blocks is left to them, and no
 * less than 1/32 of its memory. */
int rank_setup_choose_length(const struct rank_setup *setup, struct rank *ranks, struct error *err);
/* Plans all for sequences of this length. */
int rank_setup_set_length(struct rank *ranks, int32_t num_ranks, int32_t max_model_len,
                          struct error *err);

/* Chooses the numbers of blocks, for which the ranks were opened or loaded, and stores them in the
 * limits of each, with the bytes that they take. Every rank holds its heads' and layers' part of a
 * block, so all have as many. A length that was
 * chosen is kept. ERROR_CONFIG, ERROR_MEMORY as sizing.h says. */
int rank_setup_choose_blocks(struct rank *ranks, int32_t num_ranks, struct error *err);

/* Stores other numbers than were chosen. */
void rank_setup_set_blocks(struct rank *ranks, int32_t num_ranks, int32_t num_blocks,
                           int32_t num_host_blocks);

/* Describes the ranks, which are open, or planned, and have their blocks. */
void rank_setup_describe(const struct rank *ranks, int32_t num_ranks, struct executor_info *out);

/* Adds what is known of the ranks in other processes to the description of this one's. */
void rank_setup_describe_all(const struct rank_decision *decision, int32_t num_ranks,
                             struct executor_info *info);

#endif
