#include "server/telemetry/kv_events/kv_event_replay.h"

#include "config/base/byte_buffer.h"
#include "config/base/check.h"
#include "config/base/log.h"
#include "config/base/numbers.h"
#include "server/telemetry/kv_events/kv_event_format.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* --- What is kept --- */

static struct replay_entry *entry_at(const struct replay_buffer *buffer, int32_t place) {
    return &buffer->entries[(buffer->first + place) % buffer->max_entries];
}

int replay_buffer_init(struct replay_buffer *buffer, int32_t max_entries, size_t max_bytes) {
    CHECK(max_entries >= 1 && max_entries <= INT32_MAX / 2);
    *buffer = (struct replay_buffer){.max_entries = max_entries, .max_bytes = max_bytes};
    buffer->entries = calloc((size_t)max_entries, sizeof(*buffer->entries));
    return buffer->entries != NULL ? 0 : -1;
}

static void drop_oldest(struct replay_buffer *buffer) {
    struct replay_entry *oldest = entry_at(buffer, 0);
    buffer->num_bytes -= oldest->length;
    free(oldest->data);
    buffer->first = (buffer->first + 1) % buffer->max_entries;
    buffer->num_entries--;
}

void replay_buffer_finish(struct replay_buffer *buffer) {
    while (buffer->num_entries > 0)
        drop_oldest(buffer);
    free(buffer->entries);
    memset(buffer, 0, sizeof(*buffer));
}

void replay_buffer_keep(struct replay_buffer *buffer, uint64_t sequence, const void *data,
                        size_t length) {
    char *copy = length <= buffer->max_bytes ? malloc(length) : NULL;
    if (copy == NULL)
        return;
    while (buffer->num_entries == buffer->max_entries ||
           buffer->num_bytes > buffer->max_bytes - length)
        drop_oldest(buffer);
    memcpy(copy, data, length);
    *entry_at(buffer, buffer->num_entries++) = (struct replay_entry){sequence, copy, length};
    buffer->num_bytes += length;
}

uint64_t replay_buffer_last(const struct replay_buffer *buffer) {
    return buffer->num_entries > 0 ? entry_at(buffer, buffer->num_entries - 1)->sequence : 0;
}

const struct replay_entry *replay_buffer_find(const struct replay_buffer *buffer,
                                              uint64_t sequence) {
    int32_t low = 0, high = buffer->num_entries;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (entry_at(buffer, middle)->sequence < sequence)
            low = middle + 1;
        else
            high = middle;
    }
    return low < buffer->num_entries ? entry_at(buffer, low) : NULL;
}

/* --- The replay --- */

#define MAX_IDENTITY_BYTES 255
#define MAX_WAITING 64   /* messages that wait for one subscriber */
#define GIVE_UP_MS 2000  /* one takes nothing for this long */
#define REQUEST_FRAMES 3 /* identity, empty, number */

struct kv_event_replay {
    const struct zmq_library *zmq;
    void *socket; /* the thread's, once it runs */
    struct listen_socket listener;
    pthread_t thread;
    struct byte_buffer sending; /* the thread's */
    pthread_mutex_t lock;
    struct replay_buffer buffer; /* guarded by lock */
};

struct frame {
    unsigned char data[MAX_IDENTITY_BYTES];
    size_t length; /* of the whole frame, more than there is room for perhaps */
};

/* --- The thread --- */

/* Reads a whole message. Returns its number of frames, of which the first REQUEST_FRAMES are
 * stored; -1: the context was shut down. */
static int receive(const struct kv_event_replay *replay, struct frame frames[REQUEST_FRAMES]) {
    const struct zmq_library *zmq = replay->zmq;
    int num_frames = 0, has_more = 1;
    while (has_more) {
        struct frame ignored, *frame = num_frames < REQUEST_FRAMES ? &frames[num_frames] : &ignored;
        size_t size = sizeof(has_more);
        int length = zmq->recv_(replay->socket, frame->data, sizeof(frame->data), 0);
        if (length < 0 && zmq->errno_() == EINTR)
            continue;
        if (length < 0 || zmq->getsockopt_(replay->socket, ZMQ_RCVMORE, &has_more, &size) != 0)
            return -1;
        frame->length = (size_t)length;
        num_frames++;
    }
    return num_frames;
}

static bool is_request(const struct frame frames[REQUEST_FRAMES], int num_frames) {
    return num_frames == REQUEST_FRAMES && frames[0].length <= MAX_IDENTITY_BYTES &&
           frames[1].length == 0 && frames[2].length == KV_EVENT_NUMBER_BYTES;
}

static int send_frame(const struct kv_event_replay *replay, const void *data, size_t length,
                      int flags) {
    int status;
    do
        status = replay->zmq->send_(replay->socket, data, length, flags);
    while (status < 0 && replay->zmq->errno_() == EINTR);
    return status < 0 ? -1 : 0;
}

static int send_answer(const struct kv_event_replay *replay, const struct frame *identity,
                       uint64_t sequence, const void *data, size_t length) {
    unsigned char number[KV_EVENT_NUMBER_BYTES];
    kv_event_number_write(sequence, number);
    if (send_frame(replay, identity->data, identity->length, ZMQ_SNDMORE) != 0 ||
        send_frame(replay, "", 0, ZMQ_SNDMORE) != 0 ||
        send_frame(replay, number, sizeof(number), ZMQ_SNDMORE) != 0)
        return -1;
    return send_frame(replay, data, length, 0);
}

/* Copies the first batch from *sequence to `last`, and its number. Returns false when there is
 * none. */
static bool take_next(struct kv_event_replay *replay, uint64_t last, uint64_t *sequence) {
    byte_buffer_clear(&replay->sending);
    pthread_mutex_lock(&replay->lock);
    const struct replay_entry *entry = replay_buffer_find(&replay->buffer, *sequence);
    bool is_there = entry != NULL && entry->sequence <= last;
    if (is_there) {
        *sequence = entry->sequence;
        byte_buffer_append(&replay->sending, entry->data, entry->length);
    }
    pthread_mutex_unlock(&replay->lock);
    return is_there && !replay->sending.failed;
}

/* What is published meanwhile the subscriber gets anyway. */
static void answer(struct kv_event_replay *replay, const struct frame frames[REQUEST_FRAMES]) {
    uint64_t sequence = kv_event_number_read(frames[2].data);
    pthread_mutex_lock(&replay->lock);
    uint64_t last = replay_buffer_last(&replay->buffer);
    pthread_mutex_unlock(&replay->lock);
    for (; take_next(replay, last, &sequence); sequence++)
        if (send_answer(replay, &frames[0], sequence, replay->sending.data,
                        replay->sending.length) != 0)
            return;
    send_answer(replay, &frames[0], UINT64_MAX, "", 0);
}

static void *run(void *context) {
    struct kv_event_replay *replay = context;
    struct frame frames[REQUEST_FRAMES];
    int num_frames;
    while ((num_frames = receive(replay, frames)) >= 0)
        if (is_request(frames, num_frames))
            answer(replay, frames);
    replay->zmq->close_(replay->socket);
    return NULL;
}

/* --- The others --- */

static int open_socket(struct kv_event_replay *replay, const struct kv_event_config *config,
                       void *context, struct error *err) {
    const struct zmq_library *zmq = replay->zmq;
    const int on = 1, give_up_ms = GIVE_UP_MS;
    replay->socket = kv_event_socket_create(zmq, context, ZMQ_ROUTER, MAX_WAITING, err);
    if (replay->socket == NULL)
        return -1;
    /* otherwise messages are lost if there is no room */
    zmq->setsockopt_(replay->socket, ZMQ_ROUTER_MANDATORY, &on, sizeof(on));
    zmq->setsockopt_(replay->socket, ZMQ_SNDTIMEO, &give_up_ms, sizeof(give_up_ms));
    return kv_event_socket_listen(zmq, replay->socket, "replay_endpoint", &config->replay,
                                  &replay->listener, err);
}

static int start_thread(struct kv_event_replay *replay, struct error *err) {
    int rc = pthread_create(&replay->thread, NULL, run, replay);
    if (rc != 0)
        return error_set(err, ERROR_IO, "cannot start the thread quire-kv-replay: %s",
                         strerror(rc));
    pthread_setname_np(replay->thread, "quire-kv-replay");
    return 0;
}

static void free_replay(struct kv_event_replay *replay) {
    listen_socket_close(&replay->listener);
    byte_buffer_finish(&replay->sending);
    replay_buffer_finish(&replay->buffer);
    pthread_mutex_destroy(&replay->lock);
    free(replay);
}

int kv_event_replay_create(const struct kv_event_config *config, const struct zmq_library *zmq,
                           void *context, struct kv_event_replay **out, struct error *err) {
    char name[LISTEN_NAME_BYTES];
    struct kv_event_replay *replay = calloc(1, sizeof(*replay));
    if (replay == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the batches of kv-events");
    replay->zmq = zmq;
    replay->listener.fd = -1;
    CHECK(pthread_mutex_init(&replay->lock, NULL) == 0);
    int status =
        replay_buffer_init(&replay->buffer, config->buffer_steps, KV_EVENT_REPLAY_MAX_BYTES);
    if (status != 0)
        error_set(err, ERROR_MEMORY, "no memory for %d batches of kv-events", config->buffer_steps);
    if (status != 0 || open_socket(replay, config, context, err) != 0 ||
        start_thread(replay, err) != 0) {
        if (replay->socket != NULL)
            zmq->close_(replay->socket);
        free_replay(replay);
        return -1;
    }
    kv_event_socket_name(&replay->listener, name);
    log_info("kv-events: replay of the last %d batches on %s", config->buffer_steps, name);
    *out = replay;
    return 0;
}

void kv_event_replay_keep(struct kv_event_replay *replay, uint64_t sequence, const void *data,
                          size_t length) {
    pthread_mutex_lock(&replay->lock);
    replay_buffer_keep(&replay->buffer, sequence, data, length);
    pthread_mutex_unlock(&replay->lock);
}

void kv_event_replay_destroy(struct kv_event_replay *replay) {
    if (replay == NULL)
        return;
    CHECK(pthread_join(replay->thread, NULL) == 0);
    free_replay(replay);
}
