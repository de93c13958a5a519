#include "server/telemetry/kv_events/kv_event_publisher.h"

#include "config/base/log.h"
#include "server/telemetry/kv_events/kv_event_format.h"
#include "server/telemetry/kv_events/kv_event_replay.h"
#include "server/telemetry/kv_events/kv_event_socket.h"
#include "server/process/outbox.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_WAITING_BYTES ((size_t)16 << 20)
#define MAX_BATCH_BYTES ((size_t)4 << 20) /* 10 000 blocks of 64 tokens, in one step */
#define CLOSE_MS 2000
#define LINGER_MS 500 /* for what subscribers have not taken yet at the end */

/* What waits and what is being delivered; a batch, and the same encoded, in a buffer twice as
 * large: each number has 5 bytes instead of 4. */
_Static_assert(KV_EVENT_REPLAY_MAX_BYTES + 2 * MAX_WAITING_BYTES + 3 * MAX_BATCH_BYTES <
                   KV_EVENT_PUBLISHER_MAX_BYTES,
               "what is kept and what waits fits what is counted for it");

struct kv_event_publisher {
    struct kv_event_config config;
    int32_t block_size;
    struct kv_event_sink sink;
    struct zmq_library zmq;
    void *context;
    struct listen_socket listener;
    struct kv_event_replay *replay; /* NULL: none */
    struct outbox *outbox;
    _Atomic uint64_t num_batches;
    struct byte_buffer batch; /* the engine's thread's */
    /* Of the outbox's thread: */
    void *socket;
    uint64_t num_expected; /* the next batch's number, if none is lost */
    struct byte_buffer payload;
};

/* --- The engine's thread --- */

static void add(struct kv_event_publisher *publisher, const struct kv_event *event,
                const int32_t *tokens) {
    kv_event_batch_add(&publisher->batch, event, tokens, publisher->block_size);
}

static void note_stored(void *context, const struct stored_block *block) {
    const struct kv_event event = {.kind = KV_EVENT_STORED,
                                   .is_first = block->is_first,
                                   .is_private = block->is_private,
                                   .adapter = block->adapter,
                                   .key = block->key,
                                   .previous = block->previous};
    add(context, &event, block->tokens);
}

static void note_removed(void *context, const struct block_key *key) {
    const struct kv_event event = {.kind = KV_EVENT_REMOVED, .key = *key};
    add(context, &event, NULL);
}

static void note_kept(void *context, const struct block_key *key) {
    const struct kv_event event = {.kind = KV_EVENT_KEPT, .key = *key};
    add(context, &event, NULL);
}

static void note_dropped(void *context, const struct block_key *key) {
    const struct kv_event event = {.kind = KV_EVENT_DROPPED, .key = *key};
    add(context, &event, NULL);
}

static void note_cleared(void *context) {
    const struct kv_event event = {.kind = KV_EVENT_CLEARED};
    add(context, &event, NULL);
}

/* A batch that is lost has its number all the same. */
static void end_step(void *context) {
    struct kv_event_publisher *publisher = context;
    struct byte_buffer *batch = &publisher->batch;
    if (kv_event_batch_is_empty(batch))
        return;
    uint64_t sequence = atomic_fetch_add(&publisher->num_batches, 1);
    if (batch->failed) {
        outbox_count_lost(publisher->outbox);
    } else {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        kv_event_batch_end(batch, sequence, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
        outbox_put(publisher->outbox, batch->data, batch->length);
    }
    kv_event_batch_begin(batch);
}

/* --- The outbox's thread --- */

static void note_gap(struct kv_event_publisher *publisher, uint64_t sequence) {
    if (sequence != publisher->num_expected)
        log_warning("kv-events: %llu batches were lost before number %llu",
                    (unsigned long long)(sequence - publisher->num_expected),
                    (unsigned long long)sequence);
    publisher->num_expected = sequence + 1;
}

static int send_frame(const struct kv_event_publisher *publisher, const void *data, size_t length,
                      int flags) {
    return publisher->zmq.send_(publisher->socket, data, length, flags) < 0 ? -1 : 0;
}

/* A PUB socket waits for nobody. */
static int publish(struct kv_event_publisher *publisher, uint64_t sequence) {
    unsigned char number[KV_EVENT_NUMBER_BYTES];
    const struct byte_buffer *payload = &publisher->payload;
    const char *topic = publisher->config.topic;
    kv_event_number_write(sequence, number);
    if (payload->failed || send_frame(publisher, topic, strlen(topic), ZMQ_SNDMORE) != 0 ||
        send_frame(publisher, number, sizeof(number), ZMQ_SNDMORE) != 0 ||
        send_frame(publisher, payload->data, payload->length, 0) != 0)
        return -1;
    if (publisher->replay != NULL)
        kv_event_replay_keep(publisher->replay, sequence, payload->data, payload->length);
    return 0;
}

static int32_t deliver(void *context, const struct byte_buffer *items, int32_t num_items) {
    struct kv_event_publisher *publisher = context;
    const char *at = items->data;
    int32_t num_lost = 0;
    for (int32_t i = 0; i < num_items; i++) {
        struct kv_event_batch batch;
        struct kv_event_iterator events = kv_event_batch_read(&at, publisher->block_size, &batch);
        note_gap(publisher, batch.sequence);
        byte_buffer_clear(&publisher->payload);
        publisher->payload.failed = false;
        kv_event_format(&batch, events, &publisher->payload);
        num_lost += publish(publisher, batch.sequence) != 0;
    }
    return num_lost;
}

/* --- Opening and closing --- */

static int listen_for_subscribers(struct kv_event_publisher *publisher, struct error *err) {
    const struct kv_event_endpoint *endpoint = &publisher->config.endpoint;
    char name[LISTEN_NAME_BYTES];
    if (kv_event_socket_listen(&publisher->zmq, publisher->socket, "endpoint", endpoint,
                               &publisher->listener, err) != 0)
        return -1;
    kv_event_socket_name(&publisher->listener, name);
    log_info("kv-events: published on %s, topic \"%s\"", name, publisher->config.topic);
    return 0;
}

static int open_socket(struct kv_event_publisher *publisher, struct error *err) {
    const struct kv_event_config *config = &publisher->config;
    publisher->socket =
        kv_event_socket_create(&publisher->zmq, publisher->context, ZMQ_PUB, config->hwm, err);
    if (publisher->socket == NULL)
        return -1;
    if (config->binds)
        return listen_for_subscribers(publisher, err);
    log_info("kv-events: published to %s, topic \"%s\"", config->endpoint.text, config->topic);
    return kv_event_socket_connect(&publisher->zmq, publisher->socket, "endpoint",
                                   &config->endpoint, err);
}

static int open_outbox(struct kv_event_publisher *publisher, struct error *err) {
    const struct outbox_config config = {.name = "quire-kv-events",
                                         .max_bytes = MAX_WAITING_BYTES,
                                         .max_items = publisher->config.max_queue_size,
                                         .deliver = deliver,
                                         .context = publisher};
    return outbox_create(&config, &publisher->outbox, err);
}

static int start(struct kv_event_publisher *publisher, struct error *err) {
    const struct kv_event_config *config = &publisher->config;
    if (zmq_library_open(&publisher->zmq, err) != 0)
        return -1;
    publisher->context = publisher->zmq.ctx_new_();
    if (publisher->context == NULL)
        return error_set(err, ERROR_MEMORY, "kv-events: no memory for ZeroMQ");
    if (open_socket(publisher, err) != 0)
        return -1;
    if (config->replay.text[0] != '\0' &&
        kv_event_replay_create(config, &publisher->zmq, publisher->context, &publisher->replay,
                               err) != 0)
        return -1;
    return open_outbox(publisher, err);
}

static void destroy(struct kv_event_publisher *publisher) {
    const struct zmq_library *zmq = &publisher->zmq;
    const int linger_ms = LINGER_MS;
    if (publisher->socket != NULL) {
        zmq->setsockopt_(publisher->socket, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
        zmq->close_(publisher->socket);
    }
    if (publisher->context != NULL) {
        zmq->ctx_shutdown_(publisher->context);
        kv_event_replay_destroy(publisher->replay);
        zmq->ctx_term_(publisher->context);
    }
    listen_socket_close(&publisher->listener);
    byte_buffer_finish(&publisher->batch);
    byte_buffer_finish(&publisher->payload);
    free(publisher);
}

int kv_event_publisher_open(const struct kv_event_config *config, int32_t block_size,
                            struct kv_event_publisher **out, struct error *err) {
    *out = NULL;
    if (!config->is_enabled)
        return 0;
    struct kv_event_publisher *publisher = calloc(1, sizeof(*publisher));
    if (publisher == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for kv-events");
    publisher->config = *config;
    publisher->block_size = block_size;
    publisher->listener.fd = -1;
    publisher->sink = (struct kv_event_sink){.stored = note_stored,
                                             .removed = note_removed,
                                             .kept = note_kept,
                                             .dropped = note_dropped,
                                             .cleared = note_cleared,
                                             .end_step = end_step,
                                             .context = publisher};
    publisher->batch.max_length = MAX_BATCH_BYTES;
    kv_event_batch_begin(&publisher->batch);
    if (start(publisher, err) != 0) {
        destroy(publisher);
        return -1;
    }
    *out = publisher;
    return 0;
}

const struct kv_event_sink *kv_event_publisher_sink(const struct kv_event_publisher *publisher) {
    return publisher != NULL ? &publisher->sink : NULL;
}

void kv_event_publisher_get_stats(struct kv_event_publisher *publisher,
                                  struct kv_event_stats *out) {
    *out = (struct kv_event_stats){0};
    if (publisher == NULL)
        return;
    out->batches = atomic_load(&publisher->num_batches);
    out->lost_batches = outbox_num_lost(publisher->outbox);
}

/* A thread that does not end in time keeps the publisher, and the process ends with it. */
void kv_event_publisher_close(struct kv_event_publisher *publisher) {
    if (publisher != NULL && outbox_destroy(publisher->outbox, CLOSE_MS))
        destroy(publisher);
}
