/* NCCL between simulated devices. An operation is a piece of work on the stream of each rank: it
 * stays there until the other ranks have come to theirs, and the last to come does the copies, in
 * its process. Captured ones are operations anew in every launch of the graph. */
#include "device_memory.h"
#include "nccl_ranks.h"

#include "fatal.h"

#include "cudasim.h"

#include <string.h>

using namespace cudasim;

struct ncclComm {
    std::shared_ptr<communicator> all;
    int rank;
    std::shared_ptr<bool> is_aborted;
};

/* --- What a rank's stream does --- */

static const char *name_of(operation kind) {
    return kind == operation::all_gather  ? "ncclAllGather"
           : kind == operation::broadcast ? "ncclBroadcast"
           : is_sum(kind)                 ? "ncclAllReduce"
                                          : "ncclSend";
}

static void check_same(const communicator &all, int rank, int other) {
    const rank_work &a = all.ranks[(size_t)rank].work, &b = all.ranks[(size_t)other].work;
    if (a.kind != b.kind || a.bytes != b.bytes || a.root != b.root)
        fatal("rank %d comes to %s of %zu bytes, root %d, and rank %d to %s of %zu bytes, root %d",
              rank, name_of(a.kind), a.bytes, a.root, other, name_of(b.kind), b.bytes, b.root);
}

/* To a device of another process, that copies. */
static void copy_between(communicator &all, int to, char *dst, int from, const void *src,
                         size_t bytes) {
    device *target = all.ranks[(size_t)to].dev, *source = all.ranks[(size_t)from].dev;
    if (target == nullptr || dst == src || bytes == 0)
        return;
    if (source != nullptr) {
        copy_across(*target, dst, *source, src, bytes);
    } else {
        open_memory(*target);
        memcpy(dst, src, bytes);
    }
}

/* Calls touch(memory) with the rank's memory; of another process's rank, what came of it. */
template <class Touch> static void with_memory(const rank_state &state, Touch touch) {
    if (state.dev == nullptr) {
        touch();
        return;
    }
    device_at_work worker(*state.dev);
    open_memory(*state.dev);
    touch();
}

static float to_float(operation kind, uint16_t bits) {
    return kind == operation::sum_f16 ? __half2float(__ushort_as_half(bits))
                                      : __bfloat162float(__ushort_as_bfloat16(bits));
}

static uint16_t round_to(operation kind, float x) {
    return kind == operation::sum_f16 ? __half_as_ushort(__float2half_rn(x))
                                      : __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/* Around a ring, as NCCL does: the numbers are divided into as many pieces as there are ranks, and
 * each piece's sum begins at another rank and is rounded at every one. So the bits depend on how
 * many numbers there are. */
static std::vector<uint16_t> add_in_ring(operation kind,
                                         const std::vector<std::vector<uint16_t>> &parts) {
    size_t num_ranks = parts.size(), n = parts[0].size();
    std::vector<uint16_t> sums(n);
    for (size_t i = 0; i < n; i++) {
        size_t first = i * num_ranks / n + 1;
        sums[i] = parts[first % num_ranks][i];
        for (size_t r = 1; r < num_ranks; r++)
            sums[i] = round_to(kind, to_float(kind, sums[i]) +
                                         to_float(kind, parts[(first + r) % num_ranks][i]));
    }
    return sums;
}

static void add_together(communicator &all, const device &dev) {
    size_t bytes = all.ranks[0].work.bytes;
    std::vector<std::vector<uint16_t>> parts;
    if (is_skipped(dev, "ncclAllReduce"))
        return;
    for (const rank_state &state : all.ranks) {
        parts.emplace_back(bytes / sizeof(uint16_t));
        with_memory(state, [&] { memcpy(parts.back().data(), state.work.send, bytes); });
    }
    const std::vector<uint16_t> sums = add_in_ring(all.ranks[0].work.kind, parts);
    for (const rank_state &state : all.ranks)
        if (state.dev != nullptr)
            with_memory(state, [&] { memcpy(state.work.receive, sums.data(), bytes); });
}

static void do_together(communicator &all, const device &dev) {
    int num_ranks = (int)all.ranks.size();
    if (is_sum(all.ranks[0].work.kind)) {
        add_together(all, dev);
        return;
    }
    for (int to = 0; to < num_ranks; to++) {
        const rank_work &work = all.ranks[(size_t)to].work;
        char *dst = static_cast<char *>(work.receive);
        if (is_skipped(dev, name_of(work.kind)))
            continue;
        for (int from = 0; from < num_ranks; from++) {
            const rank_work &source = all.ranks[(size_t)from].work;
            if (work.kind == operation::all_gather)
                copy_between(all, to, dst + (size_t)from * work.bytes, from, source.send,
                             work.bytes);
            else if (from == work.root)
                copy_between(all, to, dst, from, source.send, work.bytes);
        }
    }
}

/* When all have come, it is done for all. A rank may have messages with others before that. */
static void meet(communicator &all, int rank) {
    for (size_t other = 0; other < all.ranks.size(); other++) {
        if (!is_there(all.ranks[other]) || all.ranks[other].work.kind == operation::exchange)
            return;
        check_same(all, rank, (int)other);
    }
    do_together(all, *all.ranks[(size_t)rank].dev);
    for (rank_state &state : all.ranks)
        state.is_done = true;
}

/* The message that the other side has come to; NULL: not yet. */
static message *find_other_side(communicator &all, int rank, const message &side) {
    rank_state &peer = all.ranks[(size_t)side.peer];
    if (!is_there(peer))
        return nullptr;
    if (peer.work.kind != operation::exchange)
        fatal("rank %d comes to ncclSend or ncclRecv, and rank %d to %s", rank, side.peer,
              name_of(peer.work.kind));
    for (message &other : peer.work.messages)
        if (!other.is_done && other.peer == rank && other.is_sent != side.is_sent)
            return &other;
    return nullptr;
}

static void deliver(communicator &all, int rank, message &side, message &other) {
    if (side.bytes != other.bytes)
        fatal("rank %d and rank %d have a message of %zu and of %zu bytes", rank, side.peer,
              side.bytes, other.bytes);
    const message &sent = side.is_sent ? side : other, &received = side.is_sent ? other : side;
    int to = sent.peer, from = received.peer;
    if (!is_skipped(*all.ranks[(size_t)rank].dev, "ncclSend"))
        copy_between(all, to, static_cast<char *>(received.data), from, sent.data, sent.bytes);
    side.is_done = other.is_done = true;
}

static bool are_done(const std::vector<message> &messages) {
    for (const message &side : messages)
        if (!side.is_done)
            return false;
    return true;
}

static void exchange(communicator &all, int rank) {
    rank_state &state = all.ranks[(size_t)rank];
    for (message &side : state.work.messages) {
        rank_state &peer = all.ranks[(size_t)side.peer];
        message *other = side.is_done ? nullptr : find_other_side(all, rank, side);
        if (other == nullptr)
            continue;
        deliver(all, rank, side, *other);
        peer.is_done = are_done(peer.work.messages);
    }
    state.is_done = are_done(state.work.messages);
}

/* Whose work this rank's waits for. */
static std::vector<awaited_queue> others_of(const communicator &all, int rank) {
    std::vector<awaited_queue> queues;
    for (size_t r = 0; r < all.ranks.size(); r++)
        if ((int)r != rank && all.ranks[r].last_queue != nullptr)
            queues.push_back({all.ranks[r].dev, all.ranks[r].last_queue});
    return queues;
}

/* Runs until it is done, one time after the other. */
static void run(communicator &all, int rank, const rank_work &work, bool is_aborted) {
    rank_state &state = all.ranks[(size_t)rank];
    if (is_aborted)
        return;
    if (!state.has_come) {
        state.has_come = true;
        state.is_done = false;
        state.work = work;
        publish(all, rank);
        if (fails_next_collective(state.dev->failure))
            all.error = ncclRemoteError;
    }
    bool is_published = learn(all);
    if (all.error == ncclSuccess && !state.is_done) {
        if (work.kind == operation::exchange)
            exchange(all, rank);
        else
            meet(all, rank);
    }
    if (all.error == ncclSuccess && state.is_done && is_published)
        state.has_come = false;
    else
        wait_for_devices(*state.dev, others_of(all, rank));
}

/* --- Calls --- */

/* Of this thread, between ncclGroupStart and ncclGroupEnd. */
static thread_local struct {
    int depth;
    ncclComm_t comm;
    cudaStream_t stream;
    std::vector<message> messages;
} group;

/* Until the last copy of what it returns is gone. */
static std::shared_ptr<void> count_captured(const std::shared_ptr<communicator> &all) {
    all->num_captured++;
    return std::shared_ptr<void>(nullptr, [all](void *) { all->num_captured--; });
}

static ncclResult_t enqueue(ncclComm_t comm, cudaStream_t stream, rank_work work) {
    api_call call;
    cudaError_t error;
    if (comm == nullptr || *comm->is_aborted)
        return ncclInvalidArgument;
    rank_state &state = comm->all->ranks[(size_t)comm->rank];
    if (&call.dev != state.dev)
        return ncclInvalidUsage; /* the thread has set another device */
    std::shared_ptr<work_queue> target = target_of(call.dev, stream, &error);
    if (target == nullptr)
        return ncclUnhandledCudaError;
    state.last_queue = queue_of(call.dev, stream);
    std::shared_ptr<void> captured =
        is_capturing(call.dev, stream) ? count_captured(comm->all) : nullptr;
    target->push_back([all = comm->all, rank = comm->rank, aborted = comm->is_aborted, captured,
                       work = std::move(work)] { run(*all, rank, work, *aborted); });
    return call.dev.failed ? ncclUnhandledCudaError : ncclSuccess;
}

static bool is_of_device(const void *data, size_t bytes) {
    api_call call;
    return bytes == 0 || range_within(call.dev.device_memory, data, bytes);
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    size_t bytes = count * sizeof(uint16_t);
    if ((type != ncclFloat16 && type != ncclBfloat16) || op != ncclSum || comm == nullptr ||
        !is_of_device(send, bytes) || !is_of_device(receive, bytes))
        return ncclInvalidArgument; /* NCCL has more types and operations; we do not use them */
    operation kind = type == ncclFloat16 ? operation::sum_f16 : operation::sum_bf16;
    return enqueue(comm, stream, {kind, send, receive, bytes, 0, {}});
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t send_count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    if (type != ncclUint8 || comm == nullptr || !is_of_device(send, send_count) ||
        !is_of_device(receive, send_count * comm->all->ranks.size()))
        return ncclInvalidArgument;
    return enqueue(comm, stream, {operation::all_gather, send, receive, send_count, 0, {}});
}

ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    if (type != ncclUint8 || comm == nullptr || root < 0 || root >= (int)comm->all->ranks.size() ||
        !is_of_device(receive, count) || (root == comm->rank && !is_of_device(send, count)))
        return ncclInvalidArgument;
    return enqueue(comm, stream, {operation::broadcast, send, receive, count, root, {}});
}

static ncclResult_t add_message(ncclComm_t comm, cudaStream_t stream, const message &side) {
    if (comm == nullptr || side.peer < 0 || side.peer >= (int)comm->all->ranks.size() ||
        side.peer == comm->rank || !is_of_device(side.data, side.bytes))
        return ncclInvalidArgument;
    if (group.depth == 0)
        return enqueue(comm, stream, {operation::exchange, nullptr, nullptr, 0, 0, {side}});
    if (!group.messages.empty() && (group.comm != comm || group.stream != stream))
        return ncclInvalidUsage; /* NCCL may; we do not */
    group.comm = comm;
    group.stream = stream;
    group.messages.push_back(side);
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    if (type != ncclUint8)
        return ncclInvalidArgument;
    return add_message(comm, stream, {true, peer, const_cast<void *>(send), count, false});
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    if (type != ncclUint8)
        return ncclInvalidArgument;
    return add_message(comm, stream, {false, peer, receive, count, false});
}

ncclResult_t ncclGroupStart(void) {
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (group.depth == 0)
        return ncclInvalidUsage;
    if (--group.depth > 0 || group.messages.empty())
        return ncclSuccess;
    rank_work work = {operation::exchange, nullptr, nullptr, 0, 0, std::move(group.messages)};
    group.messages.clear();
    return enqueue(group.comm, group.stream, std::move(work));
}

const char *ncclGetErrorString(ncclResult_t result) {
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error";
    case ncclSystemError:
        return "unhandled system error";
    case ncclInternalError:
        return "internal error";
    case ncclInvalidArgument:
        return "invalid argument";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    }
    return "unknown result code";
}

/* --- Communicators --- */

static std::map<uint64_t, std::shared_ptr<communicator>> &communicators() {
    static auto *const all = new std::map<uint64_t, std::shared_ptr<communicator>>();
    return *all; /* by number of the unique id; used with the lock held */
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
    api_call call;
    unique_id id = {};
    ncclResult_t result = create_id(&id);
    *out = {};
    static_assert(sizeof id <= sizeof out->internal);
    memcpy(out->internal, &id, sizeof id);
    return result;
}

static bool can_join(const communicator &all, int num_ranks, int rank, const device &dev) {
    if (rank < 0 || rank >= num_ranks || (int)all.ranks.size() != num_ranks ||
        all.ranks[(size_t)rank].dev != nullptr || all.ranks[(size_t)rank].link != nullptr)
        return false;
    for (const rank_state &state : all.ranks)
        if (state.dev == &dev)
            return false; /* two ranks on one device */
    return true;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int num_ranks, ncclUniqueId id, int rank) {
    api_call call;
    unique_id known;
    memcpy(&known, id.internal, sizeof known);
    *out = nullptr;
    if (memcmp(known.mark, NCCL_MARK, sizeof known.mark) != 0 || num_ranks < 1)
        return ncclInvalidArgument;
    std::shared_ptr<communicator> &slot = communicators()[known.number];
    if (slot == nullptr) {
        slot = std::make_shared<communicator>();
        slot->ranks.resize((size_t)num_ranks);
    }
    std::shared_ptr<communicator> all = slot;
    if (!can_join(*all, num_ranks, rank, call.dev))
        return ncclInvalidUsage;
    all->ranks[(size_t)rank].dev = &call.dev;
    all->num_joined++;
    all->num_local++;
    if (!is_own_id(known))
        all->error = join_others(*all, rank, known);
    for (; all->error == ncclSuccess && all->num_joined < num_ranks; pause_call())
        all->error = let_join(*all, known);
    if (all->error != ncclSuccess)
        return all->error;
    *out = all->ranks[(size_t)rank].handle = new ncclComm{all, rank, std::make_shared<bool>(false)};
    return ncclSuccess;
}

static void run_devices(const communicator &all) {
    for (const rank_state &state : all.ranks)
        for (size_t i = 0; state.dev != nullptr && i < state.dev->queues.size(); i++)
            run_one(*state.dev, *state.dev->queues[i]);
}

/* As NCCL's, the last rank of a process to go waits until no graph has an operation of any of its
 * ranks: for ever while a graph lives. The devices work meanwhile. */
static void leave(ncclComm_t comm) {
    communicator &all = *comm->all;
    *comm->is_aborted = true;
    all.ranks[(size_t)comm->rank].handle = nullptr;
    if (++all.num_gone == all.num_local)
        for (; all.num_captured > 0; pause_call())
            run_devices(all);
    delete comm;
}

/* What is enqueued is done first: unlike an abort it waits for the other ranks. */
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    api_call call;
    if (comm == nullptr || *comm->is_aborted)
        return ncclInvalidArgument;
    run_all_streams(*comm->all->ranks[(size_t)comm->rank].dev);
    say_goodbye(*comm->all);
    leave(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    api_call call;
    if (comm == nullptr)
        return ncclInvalidArgument;
    for (rank_state &state : comm->all->ranks)
        state.link.reset();
    leave(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    api_call call;
    if (comm == nullptr)
        return ncclInvalidArgument;
    learn(*comm->all);
    *error = comm->all->error;
    return ncclSuccess;
}
