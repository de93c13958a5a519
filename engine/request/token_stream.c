/* An event in a buffer is one record, padded to 8 bytes:
 *
 *   struct packed_event | token_record[num_tokens] | top_logprob[num_top] |
 *   float[num_dimensions] | text
 *
 * All parts but the text are multiples of 4 bytes, so every pointer handed out is aligned. */
#include "engine/request/token_stream.h"

#include "config/base/array.h"
#include "config/base/check.h"
#include "config/base/checked.h"

#include <stdlib.h>
#include <string.h>

#define RECORD_ALIGNMENT 8

struct packed_event {
    size_t record_bytes; /* to the next event */
    size_t text_bytes;
    enum token_event_kind kind;
    int32_t choice;
    int32_t num_tokens;
    int32_t num_top;
    int32_t num_dimensions;
    enum finish_reason finish;
    int32_t stop_token;
    int32_t stop_string;
    int32_t num_generated;
    int32_t num_cached_tokens;
    int32_t num_stored_tokens;
    int32_t num_computed;
};

void token_stream_init(struct token_stream *stream) {
    memset(stream, 0, sizeof(*stream));
    CHECK(pthread_mutex_init(&stream->lock, NULL) == 0);
}

void token_stream_finish(struct token_stream *stream) {
    token_buffer_finish(&stream->pending);
    pthread_mutex_destroy(&stream->lock);
}

void token_buffer_finish(struct token_buffer *buffer) {
    free(buffer->data);
    memset(buffer, 0, sizeof(*buffer));
}

const char *token_stream_finish_name(enum finish_reason reason) {
    static const char *const names[] = {
        [FINISH_NONE] = "none",
        [FINISH_STOP] = "stop",
        [FINISH_LENGTH] = "length",
        [FINISH_DEADLINE] = "deadline",
        [FINISH_QUEUE_TIMEOUT] = "queue timeout",
        [FINISH_ASLEEP] = "asleep",
        [FINISH_ABORT] = "aborted",
        [FINISH_CRASHED] = "device crashed",
        [FINISH_ERROR] = "error",
    };
    return names[reason];
}

static bool record_bytes(const struct token_event *event, size_t *out) {
    size_t tokens, top, floats, sum;
    if (!checked_mul((size_t)event->num_tokens, sizeof(struct token_record), &tokens) ||
        !checked_mul((size_t)event->num_top, sizeof(struct top_logprob), &top) ||
        !checked_mul((size_t)event->num_dimensions, sizeof(float), &floats) ||
        !checked_add(sizeof(struct packed_event), tokens, &sum) || !checked_add(sum, top, &sum) ||
        !checked_add(sum, floats, &sum) || !checked_add(sum, event->text_bytes, &sum) ||
        !checked_add(sum, RECORD_ALIGNMENT - 1, &sum))
        return false;
    *out = sum & ~(size_t)(RECORD_ALIGNMENT - 1);
    return true;
}

static bool reserve(struct token_buffer *buffer, size_t bytes) {
    size_t needed;
    return checked_add(buffer->bytes, bytes, &needed) &&
           array_reserve(&buffer->data, &buffer->capacity, needed, 1);
}

static unsigned char *append(unsigned char *to, const void *from, size_t bytes) {
    if (bytes > 0)
        memcpy(to, from, bytes);
    return to + bytes;
}

static void pack(unsigned char *to, size_t bytes, const struct token_event *event) {
    struct packed_event packed = {
        .record_bytes = bytes,
        .text_bytes = event->text_bytes,
        .kind = event->kind,
        .choice = event->choice,
        .num_tokens = event->num_tokens,
        .num_top = event->num_top,
        .num_dimensions = event->num_dimensions,
        .finish = event->finish,
        .stop_token = event->stop_token,
        .stop_string = event->stop_string,
        .num_generated = event->num_generated,
        .num_cached_tokens = event->num_cached_tokens,
        .num_stored_tokens = event->num_stored_tokens,
        .num_computed = event->num_computed,
    };
    to = append(to, &packed, sizeof(packed));
    to = append(to, event->tokens, (size_t)event->num_tokens * sizeof(*event->tokens));
    to = append(to, event->top, (size_t)event->num_top * sizeof(*event->top));
    to = append(to, event->embedding, (size_t)event->num_dimensions * sizeof(float));
    append(to, event->text, event->text_bytes);
}

int token_stream_reserve(struct token_stream *stream, int32_t num_events) {
    CHECK(num_events >= 0);
    const struct token_event empty = {0};
    size_t bytes;
    if (!record_bytes(&empty, &bytes) || !checked_mul(bytes, (size_t)num_events, &bytes))
        return -1;
    return reserve(&stream->pending, bytes) ? 0 : -1;
}

int token_stream_push(struct token_stream *stream, const struct token_event *event) {
    CHECK(event->num_tokens >= 0 && event->num_top >= 0 && event->num_dimensions >= 0);
    size_t bytes;
    if (!record_bytes(event, &bytes))
        return -1;
    pthread_mutex_lock(&stream->lock);
    bool ok = reserve(&stream->pending, bytes);
    if (ok) {
        pack(stream->pending.data + stream->pending.bytes, bytes, event);
        stream->pending.bytes += bytes;
    }
    pthread_mutex_unlock(&stream->lock);
    return ok ? 0 : -1;
}

size_t token_stream_pending_bytes(struct token_stream *stream) {
    pthread_mutex_lock(&stream->lock);
    size_t bytes = stream->pending.bytes;
    pthread_mutex_unlock(&stream->lock);
    return bytes;
}

void token_stream_take(struct token_stream *stream, struct token_buffer *buffer) {
    buffer->bytes = 0;
    buffer->cursor = 0;
    pthread_mutex_lock(&stream->lock);
    if (stream->pending.bytes > 0) {
        struct token_buffer taken = stream->pending;
        stream->pending = *buffer;
        *buffer = taken;
    }
    pthread_mutex_unlock(&stream->lock);
}

bool token_buffer_next(struct token_buffer *buffer, struct token_event *out) {
    if (buffer->cursor >= buffer->bytes)
        return false;
    const unsigned char *at = buffer->data + buffer->cursor;
    struct packed_event packed;
    memcpy(&packed, at, sizeof(packed));
    at += sizeof(packed);
    const unsigned char *top = at + (size_t)packed.num_tokens * sizeof(struct token_record);
    const unsigned char *floats = top + (size_t)packed.num_top * sizeof(struct top_logprob);
    const unsigned char *text = floats + (size_t)packed.num_dimensions * sizeof(float);
    *out = (struct token_event){
        .kind = packed.kind,
        .choice = packed.choice,
        .text = (const char *)text,
        .text_bytes = packed.text_bytes,
        .num_tokens = packed.num_tokens,
        .tokens = (const struct token_record *)at,
        .top = (const struct top_logprob *)top,
        .num_top = packed.num_top,
        .embedding = packed.num_dimensions > 0 ? (const float *)floats : NULL,
        .num_dimensions = packed.num_dimensions,
        .finish = packed.finish,
        .stop_token = packed.stop_token,
        .stop_string = packed.stop_string,
        .num_generated = packed.num_generated,
        .num_cached_tokens = packed.num_cached_tokens,
        .num_stored_tokens = packed.num_stored_tokens,
        .num_computed = packed.num_computed,
    };
    buffer->cursor += packed.record_bytes;
    return true;
}
