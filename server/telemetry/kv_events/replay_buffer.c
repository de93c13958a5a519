#include "server/telemetry/kv_events/replay_buffer.h"

#include "config/base/check.h"

#include <stdlib.h>
#include <string.h>

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
