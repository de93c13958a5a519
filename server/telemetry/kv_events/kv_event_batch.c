/* Headers and events are multiples of 8 bytes, tokens of 4, so that tokens can be read in place. */
#include "server/telemetry/kv_events/kv_event_batch.h"

#include "config/base/check.h"

#include <string.h>

void kv_event_batch_begin(struct byte_buffer *buffer) {
    const struct kv_event_batch header = {0};
    byte_buffer_clear(buffer);
    buffer->failed = buffer->is_full = false;
    byte_buffer_append(buffer, &header, sizeof(header));
}

static size_t token_bytes(const struct kv_event *event, int32_t block_size) {
    return event->kind == KV_EVENT_STORED ? (size_t)block_size * sizeof(int32_t) : 0;
}

void kv_event_batch_add(struct byte_buffer *buffer, const struct kv_event *event,
                        const int32_t *tokens, int32_t block_size) {
    byte_buffer_append(buffer, event, sizeof(*event));
    if (tokens != NULL)
        byte_buffer_append(buffer, tokens, token_bytes(event, block_size));
}

bool kv_event_batch_is_empty(const struct byte_buffer *buffer) {
    return !buffer->failed && buffer->length == sizeof(struct kv_event_batch);
}

void kv_event_batch_end(struct byte_buffer *buffer, uint64_t sequence, double time_s) {
    CHECK(!buffer->failed && buffer->length >= sizeof(struct kv_event_batch));
    const struct kv_event_batch header = {
        .sequence = sequence, .time_s = time_s, .num_bytes = buffer->length - sizeof(header)};
    memcpy(buffer->data, &header, sizeof(header));
}

struct kv_event_iterator kv_event_batch_read(const char **data, int32_t block_size,
                                             struct kv_event_batch *out) {
    memcpy(out, *data, sizeof(*out));
    const char *begin = *data + sizeof(*out);
    *data = begin + out->num_bytes;
    return (struct kv_event_iterator){.at = begin, .end = *data, .block_size = block_size};
}

bool kv_event_iterator_next(struct kv_event_iterator *iterator, struct kv_event *out,
                            const int32_t **out_tokens) {
    if (iterator->at == iterator->end)
        return false;
    memcpy(out, iterator->at, sizeof(*out));
    const char *tokens = iterator->at + sizeof(*out);
    *out_tokens = out->kind == KV_EVENT_STORED ? (const void *)tokens : NULL;
    iterator->at = tokens + token_bytes(out, iterator->block_size);
    CHECK(iterator->at <= iterator->end);
    return true;
}
