/* What a rank has done since it was started. */
#ifndef QUIRE_ENGINE_RANK_STATS_H
#define QUIRE_ENGINE_RANK_STATS_H

#include <stdint.h>

struct rank_stats {
    int64_t compute_ns;       /* in steps, but for what follows */
    int64_t communication_ns; /* with the other ranks, waiting for them included */
    uint64_t bytes_sent;      /* to them, in messages of collective ops; threads of one process send
                                 none */
};

#endif
