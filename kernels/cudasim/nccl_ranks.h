/* The ranks of a communicator, of this process and of others, and what their streams have come
 * to. */
#ifndef CUDASIM_NCCL_RANKS_H
#define CUDASIM_NCCL_RANKS_H

#include "device.h"
#include "nccl_links.h"

#include <nccl.h>

namespace cudasim {

enum class operation : uint32_t { all_gather, broadcast, exchange, sum_f16, sum_bf16 };

inline bool is_sum(operation kind) {
    return kind == operation::sum_f16 || kind == operation::sum_bf16;
}

/* One side of a message. */
struct message {
    bool is_sent;
    int peer;
    void *data; /* NULL: in the memory of another process */
    size_t bytes;
    bool is_done;
};

/* What a rank's stream comes to. */
struct rank_work {
    operation kind;
    const void *send;
    void *receive;
    size_t bytes;
    int root;
    std::vector<message> messages; /* of an exchange */
};

struct rank_state {
    device *dev;                            /* NULL: of another process */
    ncclComm_t handle;                      /* its host's, until it is gone */
    std::shared_ptr<work_queue> last_queue; /* that an operation was given to */
    bool has_come, is_done;                 /* to `work`, and whether the ranks have done it */
    rank_work work;
    std::unique_ptr<process_link> link; /* to its process; NULL: this one */
    std::vector<char> data;             /* that came from there, where `work` points */
    bool has_left;                      /* that process has destroyed its communicator */
};

struct communicator {
    std::vector<rank_state> ranks;
    int num_joined;          /* ranks that came, of this process and of others */
    int num_local, num_gone; /* of this process: that came; and were destroyed or aborted */
    int num_captured;        /* operations in captures and graphs that live */
    ncclResult_t error;      /* of all ranks: it goes on no more */
};

/* Has come to its work, which is open. */
inline bool is_there(const rank_state &state) {
    return state.has_come && !state.is_done;
}

/* --- nccl_processes.cpp: ranks in other processes --- */

static const char NCCL_MARK[16] = "cudasim nccl";

/* What a unique id holds. */
struct unique_id {
    char mark[16];
    uint64_t number; /* at random */
    link_address address;
};

/* Gives an id by which this process is reached until all ranks have joined. */
ncclResult_t create_id(unique_id *out);
bool is_own_id(const unique_id &id);
/* Called by the process of the id, which waits: lets those join that have come from other
 * processes, and when they were the last, tells all of each other. */
ncclResult_t let_join(communicator &all, const unique_id &id);
/* Called by another process, for its only rank. Waits for all. */
ncclResult_t join_others(communicator &all, int rank, const unique_id &id);

/* Tells the others what the rank of this process has come to, of what concerns them, with the data
 * of its device. */
void publish(communicator &all, int rank);
/* Learns what they have come to. A process that is gone, without having destroyed its communicator,
 * is the communicator's error. Returns whether all that was published is on its way. */
bool learn(communicator &all);
/* Says that the communicator is destroyed. */
void say_goodbye(communicator &all);

} // namespace cudasim

#endif
