#include "tests/kernels/fake_transport.h"

#include "config/base/check.h"
#include "config/base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 8

struct transport_request {
    struct transport_request *next;   /* begun after it, on the same side of the link */
    struct transport_request *before; /* of all that were ever begun */
    struct link *link;
    const void *from; /* of a message that is sent; NULL: it is received */
    void *to;
    size_t bytes;
    int32_t rank, peer; /* whose request it is, and the other side */
    bool is_done;
};

/* One side's requests that are not done, the oldest first. */
struct side {
    struct transport_request *first, **end;
};

/* What one rank sends another on one channel. */
struct link {
    struct side sent, received;
    int64_t due_ns; /* when the message that both sides have begun arrives; 0: none */
    size_t num_bytes;
};

struct fake_rank {
    struct transport base;
    struct fake_network *network;
    bool is_silent, is_closed;
};

struct fake_network {
    pthread_mutex_t lock; /* guards all that follows */
    int32_t num_ranks;
    int64_t max_delay_ns;
    unsigned seed;
    struct transport_request *last; /* begun; all are kept, done or not, until the end */
    struct fake_rank ranks[MAX_RANKS];
    struct link links[TRANSPORT_NUM_CHANNELS][MAX_RANKS][MAX_RANKS];
};

static void side_append(struct side *side, struct transport_request *request) {
    *side->end = request;
    side->end = &request->next;
}

static struct transport_request *side_take(struct side *side) {
    struct transport_request *request = side->first;
    side->first = request->next;
    if (side->first == NULL)
        side->end = &side->first;
    return request;
}

static struct fake_network *network_of(struct transport *t) {
    return ((struct fake_rank *)t)->network;
}

/* --- The ops --- */

static int check_open(const struct fake_network *network, int32_t rank, int32_t peer,
                      struct error *err) {
    if (!network->ranks[rank].is_closed && !network->ranks[peer].is_closed)
        return 0;
    return error_set(err, ERROR_DEVICE, "rank %d is gone",
                     network->ranks[peer].is_closed ? peer : rank);
}

static struct transport_request *begin_locked(struct fake_network *network, struct side *side,
                                              const struct transport_request *wanted,
                                              struct error *err) {
    if (check_open(network, wanted->rank, wanted->peer, err) != 0)
        return NULL;
    struct transport_request *request = malloc(sizeof(*request));
    CHECK(request != NULL);
    *request = *wanted;
    request->before = network->last;
    network->last = request;
    side_append(side, request);
    return request;
}

static struct transport_request *begin(struct transport *t, struct side *side,
                                       const struct transport_request *wanted, struct error *err) {
    struct fake_network *network = network_of(t);
    pthread_mutex_lock(&network->lock);
    struct transport_request *request = begin_locked(network, side, wanted, err);
    pthread_mutex_unlock(&network->lock);
    return request;
}

static struct transport_request *fake_send(struct transport *t, enum transport_channel channel,
                                           int32_t rank, const void *data, size_t bytes,
                                           struct error *err) {
    struct link *link = &network_of(t)->links[channel][t->rank][rank];
    const struct transport_request wanted = {
        .link = link, .from = data, .bytes = bytes, .rank = t->rank, .peer = rank};
    return begin(t, &link->sent, &wanted, err);
}

static struct transport_request *fake_receive(struct transport *t, enum transport_channel channel,
                                              int32_t rank, void *data, size_t bytes,
                                              struct error *err) {
    struct link *link = &network_of(t)->links[channel][rank][t->rank];
    const struct transport_request wanted = {
        .link = link, .to = data, .bytes = bytes, .rank = t->rank, .peer = rank};
    return begin(t, &link->received, &wanted, err);
}

static void deliver(struct link *link) {
    struct transport_request *sent = side_take(&link->sent);
    struct transport_request *received = side_take(&link->received);
    CHECK(sent->bytes == received->bytes);
    memcpy(received->to, sent->from, sent->bytes);
    link->num_bytes += sent->bytes;
    sent->is_done = received->is_done = true;
    link->due_ns = 0;
}

static void advance(struct fake_network *network, struct link *link) {
    while (link->sent.first != NULL && link->received.first != NULL) {
        int64_t now = clock_now_ns();
        if (link->due_ns == 0)
            link->due_ns =
                now +
                (network->max_delay_ns > 0 ? rand_r(&network->seed) % network->max_delay_ns : 0);
        if (now < link->due_ns)
            return;
        deliver(link);
    }
}

static int test_locked(struct fake_network *network, struct transport_request *request,
                       struct error *err) {
    const struct fake_rank *own = &network->ranks[request->rank];
    const struct fake_rank *peer = &network->ranks[request->peer];
    if (!request->is_done && check_open(network, request->rank, request->peer, err) != 0)
        return -1;
    if (!own->is_silent && !peer->is_silent)
        advance(network, request->link);
    return request->is_done;
}

static int fake_test(struct transport *t, struct transport_request *request, struct error *err) {
    struct fake_network *network = network_of(t);
    pthread_mutex_lock(&network->lock);
    int state = test_locked(network, request, err);
    pthread_mutex_unlock(&network->lock);
    return state;
}

static void fake_destroy(struct transport *t) {
}

static const struct transport_ops fake_ops = {
    .send = fake_send, .receive = fake_receive, .test = fake_test, .destroy = fake_destroy};

/* --- The network --- */

struct fake_network *fake_network_create(int32_t num_ranks, int64_t timeout_ns) {
    struct fake_network *network = calloc(1, sizeof(*network));
    CHECK(network != NULL && num_ranks <= MAX_RANKS);
    CHECK(pthread_mutex_init(&network->lock, NULL) == 0);
    network->num_ranks = num_ranks;
    network->seed = 1;
    for (int32_t r = 0; r < num_ranks; r++)
        network->ranks[r] = (struct fake_rank){.base = {.ops = &fake_ops,
                                                        .rank = r,
                                                        .num_ranks = num_ranks,
                                                        .num_local = num_ranks,
                                                        .local_rank = r,
                                                        .timeout_ns = timeout_ns},
                                               .network = network};
    struct link *links = &network->links[0][0][0];
    for (size_t i = 0; i < sizeof(network->links) / sizeof(*links); i++) {
        links[i].sent.end = &links[i].sent.first;
        links[i].received.end = &links[i].received.first;
    }
    return network;
}

void fake_network_destroy(struct fake_network *network) {
    while (network->last != NULL) {
        struct transport_request *request = network->last;
        network->last = request->before;
        free(request);
    }
    pthread_mutex_destroy(&network->lock);
    free(network);
}

struct transport *fake_network_transport(struct fake_network *network, int32_t rank) {
    return &network->ranks[rank].base;
}

void fake_network_delay(struct fake_network *network, int64_t max_ns) {
    pthread_mutex_lock(&network->lock);
    network->max_delay_ns = max_ns;
    pthread_mutex_unlock(&network->lock);
}

void fake_network_silence(struct fake_network *network, int32_t rank) {
    pthread_mutex_lock(&network->lock);
    network->ranks[rank].is_silent = true;
    pthread_mutex_unlock(&network->lock);
}

void fake_network_close(struct fake_network *network, int32_t rank) {
    pthread_mutex_lock(&network->lock);
    network->ranks[rank].is_closed = true;
    pthread_mutex_unlock(&network->lock);
}

size_t fake_network_bytes(struct fake_network *network, int32_t from, int32_t to) {
    size_t num_bytes = 0;
    pthread_mutex_lock(&network->lock);
    for (int c = 0; c < TRANSPORT_NUM_CHANNELS; c++)
        num_bytes += network->links[c][from][to].num_bytes;
    pthread_mutex_unlock(&network->lock);
    return num_bytes;
}
