/* What ranks that are processes tell each other while they start. Each reports to rank 0, which
 * compares the reports and decides for all. Called by every rank, at the same time, in the thread
 * that starts it. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_AGREEMENT_H
#define QUIRE_ENGINE_EXECUTOR_RANK_AGREEMENT_H

#include "engine/executor/executor.h"

struct rank_report {
    struct error error; /* why the rank cannot continue; ERROR_NONE: it can */
    char build[72];
    char device[32];
    struct executor_config config;       /* its pointers are meaningless in other processes; with
                                            the size of a step that the rank has chosen */
    struct weights_digest model;         /* its pointers are meaningless there too */
    int32_t max_model_len;               /* chosen by the rank, or requested */
    int32_t num_blocks, num_host_blocks; /* that the rank has room for */
    int64_t swap_block_ns;
    struct executor_memory memory;
    char place[EXECUTOR_PLACE_BYTES];
    char numerics[EXECUTOR_NUMERICS_BYTES]; /* of its backend */
};

struct rank_decision {
    struct error error; /* of the first rank that cannot continue, or differs from rank 0 */
    int32_t max_model_len, num_blocks, num_host_blocks; /* that every rank has room for */
    int64_t swap_block_ns;                              /* of the slowest */
    struct executor_memory memory[BACKEND_MAX_RANKS];
    char places[BACKEND_MAX_RANKS][EXECUTOR_PLACE_BYTES];
    char numerics[BACKEND_MAX_RANKS][EXECUTOR_NUMERICS_BYTES];
};

/* Returns what rank 0 decides; pure. reports: [num_ranks]. */
struct rank_decision rank_agreement_decide(const struct rank_report *reports, int32_t num_ranks);

/* Waits for the slowest rank, however long that takes. Returns 0, or -1 with this rank's own error
 * if it has one, otherwise with that of the decision or of the transport. */
int rank_agreement_reach(struct transport *transport, const struct rank_report *report,
                         struct rank_decision *out, struct error *err);

/* Called once they have agreed: rank 0 learns what the others know of the model's bytes. It returns
 * ERROR_CONFIG when two ranks have read the same piece and got different bytes. ERROR_MEMORY,
 * ERROR_DEVICE. */
int rank_agreement_share_model(struct transport *transport, struct weights_digest *model,
                               struct error *err);

#endif
