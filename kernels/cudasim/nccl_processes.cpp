/* The ranks of a communicator that are in other processes. Every two processes have a connection,
 * on which each tells the other, operation by operation, what its rank has come to, with the data
 * that this is to get: so each does its own part of the operation once it knows of all the others.
 * As between devices of one process, none is done before the others have come. */
#include "device_memory.h"
#include "fatal.h"
#include "nccl_ranks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

namespace cudasim {

/* --- The start --- */

/* What a rank says to the process of the id, or to another rank. */
struct greeting {
    uint64_t number; /* of the id */
    int rank, num_ranks;
    int bus; /* the GPU's place on its machine */
    link_address address;
};

/* The answer, which the greetings of all ranks follow in their order. */
struct welcome {
    ncclResult_t result;
    int root; /* the rank whose process answers */
};

struct own_id {
    int listener;
    std::vector<greeting> greetings; /* of the ranks of other processes */
    std::vector<int> sockets;        /* by the same index */
};

static std::map<uint64_t, own_id> &own_ids() {
    static auto *const all = new std::map<uint64_t, own_id>();
    return *all; /* by number; used with the lock held */
}

ncclResult_t create_id(unique_id *out) {
    memcpy(out->mark, NCCL_MARK, sizeof out->mark);
    int listener = listen_for_links(&out->address);
    if (listener < 0 || getrandom(&out->number, sizeof out->number, 0) != sizeof out->number)
        return ncclSystemError;
    own_ids()[out->number].listener = listener;
    return ncclSuccess;
}

bool is_own_id(const unique_id &id) {
    return own_ids().count(id.number) > 0;
}

/* The number of the device among all of its machine, of which this process may be shown some. */
static int bus_of(const device &dev) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return dev.ordinal + (visible != nullptr ? atoi(visible) : 0);
}

static const device &own_device(const communicator &all, int *out_rank) {
    int rank = 0;
    while (all.ranks[(size_t)rank].dev == nullptr)
        rank++;
    *out_rank = rank;
    return *all.ranks[(size_t)rank].dev;
}

static ncclResult_t judge(const communicator &all, const std::vector<greeting> &greetings) {
    if (all.num_local != 1)
        return ncclInvalidUsage; /* NCCL may; the simulator has all ranks here, or one */
    for (size_t i = 0; i < greetings.size(); i++)
        for (size_t k = 0; k < i; k++) {
            const greeting &a = greetings[i], &b = greetings[k];
            if (a.rank == b.rank || a.num_ranks != b.num_ranks ||
                (a.bus == b.bus && strcmp(a.address.host, b.address.host) == 0))
                return ncclInvalidUsage; /* two ranks on one device, say */
        }
    return ncclSuccess;
}

/* Tells all of all, once the last has come. */
static ncclResult_t introduce(communicator &all, own_id &own, const unique_id &id) {
    greeting self = {id.number, 0, (int)all.ranks.size(), 0, id.address};
    self.bus = bus_of(own_device(all, &self.rank));
    std::vector<greeting> greetings = own.greetings;
    greetings.push_back(self);
    const welcome answer = {judge(all, greetings), self.rank};
    std::sort(greetings.begin(), greetings.end(),
              [](const greeting &a, const greeting &b) { return a.rank < b.rank; });
    for (int socket : own.sockets)
        if (!send_bytes(socket, &answer, sizeof answer) ||
            !send_bytes(socket, greetings.data(), greetings.size() * sizeof(greeting)))
            return ncclSystemError;
    for (size_t i = 0; i < own.sockets.size(); i++)
        all.ranks[(size_t)own.greetings[i].rank].link.reset(new process_link(own.sockets[i]));
    return answer.result;
}

ncclResult_t let_join(communicator &all, const unique_id &id) {
    own_id &own = own_ids()[id.number];
    int socket = accept_link(own.listener, false);
    if (socket < 0)
        return ncclSuccess;
    greeting other;
    if (!receive_bytes(socket, &other, sizeof other) || other.number != id.number ||
        other.rank < 0 || other.rank >= (int)all.ranks.size())
        return ncclSystemError;
    own.greetings.push_back(other);
    own.sockets.push_back(socket);
    all.num_joined++;
    return all.num_joined == (int)all.ranks.size() ? introduce(all, own, id) : ncclSuccess;
}

static int greet(const link_address &to, const greeting &self) {
    int socket = connect_link(to);
    return socket >= 0 && send_bytes(socket, &self, sizeof self) ? socket : -1;
}

static ncclResult_t link_to(communicator &all, int rank, int socket) {
    if (socket < 0)
        return ncclSystemError;
    all.ranks[(size_t)rank].link.reset(new process_link(socket));
    return ncclSuccess;
}

static int accept_greeting(int listener, uint64_t number, greeting *out) {
    int socket = accept_link(listener, true);
    return socket >= 0 && receive_bytes(socket, out, sizeof *out) && out->number == number ? socket
                                                                                           : -1;
}

/* A rank connects to those before it, and accepts those after it. With the root it is connected. */
static ncclResult_t meet_others(communicator &all, const std::vector<greeting> &greetings,
                                const greeting &self, int root, int listener) {
    ncclResult_t result = ncclSuccess;
    for (const greeting &other : greetings) {
        greeting heard;
        if (other.rank == self.rank || other.rank == root || result != ncclSuccess)
            continue;
        if (other.rank < self.rank) {
            result = link_to(all, other.rank, greet(other.address, self));
        } else {
            int socket = accept_greeting(listener, self.number, &heard);
            result = link_to(all, heard.rank, socket);
        }
    }
    return result;
}

ncclResult_t join_others(communicator &all, int rank, const unique_id &id) {
    std::vector<greeting> greetings(all.ranks.size());
    greeting self = {id.number, rank, (int)all.ranks.size(), 0, {}};
    welcome answer;
    self.bus = bus_of(*all.ranks[(size_t)rank].dev);
    int listener = listen_for_links(&self.address);
    int root = listener >= 0 ? greet(id.address, self) : -1;
    if (root < 0 || !receive_bytes(root, &answer, sizeof answer) ||
        !receive_bytes(root, greetings.data(), greetings.size() * sizeof(greeting)))
        return ncclSystemError;
    if (answer.result != ncclSuccess)
        return answer.result;
    ncclResult_t result = link_to(all, answer.root, root);
    if (result == ncclSuccess)
        result = meet_others(all, greetings, self, answer.root, listener);
    close(listener);
    all.num_joined = (int)all.ranks.size();
    return result;
}

/* --- Operations --- */

/* What a rank has come to, as far as it concerns the one that is told. Followed by its messages
 * with that one, and the data that this one gets. */
struct record {
    operation kind;
    bool is_goodbye; /* the communicator is destroyed; nothing else counts */
    int root;
    uint64_t bytes, num_messages, data_bytes;
};

struct message_record {
    bool is_sent;
    uint64_t bytes;
};

/* Data of the device at work. */
struct outgoing {
    const void *data;
    size_t bytes;
};

static void write_record(process_link &link, record head,
                         const std::vector<message_record> &messages,
                         const std::vector<outgoing> &data) {
    head.num_messages = messages.size();
    for (const outgoing &part : data)
        head.data_bytes += part.bytes;
    link.write(&head, sizeof head);
    link.write(messages.data(), messages.size() * sizeof(message_record));
    for (const outgoing &part : data)
        link.write(part.data, part.bytes);
}

static void publish_messages(process_link &link, const rank_work &work, int peer) {
    std::vector<message_record> messages;
    std::vector<outgoing> data;
    for (const message &side : work.messages) {
        if (side.peer != peer)
            continue;
        messages.push_back({side.is_sent, side.bytes});
        if (side.is_sent)
            data.push_back({side.data, side.bytes});
    }
    if (!messages.empty())
        write_record(link, {work.kind, false, 0, 0, 0, 0}, messages, data);
}

void publish(communicator &all, int rank) {
    const rank_work &work = all.ranks[(size_t)rank].work;
    std::vector<outgoing> data;
    if (work.kind == operation::all_gather || is_sum(work.kind) ||
        (work.kind == operation::broadcast && work.root == rank))
        data.push_back({work.send, work.bytes});
    open_memory(*all.ranks[(size_t)rank].dev);
    for (int peer = 0; peer < (int)all.ranks.size(); peer++) {
        process_link *link = all.ranks[(size_t)peer].link.get();
        if (link == nullptr)
            continue;
        if (work.kind == operation::exchange)
            publish_messages(*link, work, peer);
        else
            write_record(*link, {work.kind, false, work.root, work.bytes, 0, 0}, {}, data);
    }
}

static void take(std::vector<char> &bytes, void *out, size_t count) {
    memcpy(out, bytes.data(), count);
    bytes.erase(bytes.begin(), bytes.begin() + (ptrdiff_t)count);
}

static void take_messages(rank_state &state, size_t count, int own_rank) {
    std::vector<message_record> messages(count);
    take(state.link->received, messages.data(), count * sizeof(message_record));
    char *data = state.data.data();
    for (const message_record &side : messages) {
        state.work.messages.push_back(
            {side.is_sent, own_rank, side.is_sent ? data : nullptr, side.bytes, false});
        data += side.is_sent ? side.bytes : 0;
    }
}

/* The rank's next operation, if all of it is here. */
static void take_record(rank_state &state, int own_rank) {
    std::vector<char> &received = state.link->received;
    record head;
    if (received.size() < sizeof head)
        return;
    memcpy(&head, received.data(), sizeof head);
    size_t messages_bytes = head.num_messages * sizeof(message_record);
    if (received.size() < sizeof head + messages_bytes + head.data_bytes)
        return;
    take(received, &head, sizeof head);
    if (head.is_goodbye) {
        state.has_left = true;
        return;
    }
    const char *data = received.data() + messages_bytes;
    state.data.assign(data, data + head.data_bytes);
    state.work = {head.kind, state.data.data(), nullptr, head.bytes, head.root, {}};
    take_messages(state, head.num_messages, own_rank);
    received.erase(received.begin(), received.begin() + (ptrdiff_t)head.data_bytes);
    state.has_come = true;
    state.is_done = false;
}

bool learn(communicator &all) {
    bool is_published = true;
    int own_rank;
    own_device(all, &own_rank);
    for (rank_state &state : all.ranks) {
        if (state.link == nullptr)
            continue;
        state.link->carry();
        if (!is_there(state))
            state.has_come = false;
        if (!state.has_come && !state.has_left)
            take_record(state, own_rank);
        if (state.link->is_lost() && !state.has_come && !state.has_left)
            all.error = ncclRemoteError;
        is_published = is_published && state.link->is_written();
    }
    return is_published;
}

void say_goodbye(communicator &all) {
    for (rank_state &state : all.ranks)
        if (state.link != nullptr) {
            write_record(*state.link, {operation::exchange, true, 0, 0, 0, 0}, {}, {});
            state.link->carry();
        }
}

} // namespace cudasim
