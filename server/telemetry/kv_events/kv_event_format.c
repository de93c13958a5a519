/* Headers and events are multiples of 4 bytes, and so are tokens and padded names after them, so
 * that tokens can be read in place. */
#include "server/telemetry/kv_events/kv_event_format.h"

#include "config/base/check.h"

#include <inttypes.h>
#include <msgpack/pack.h>
#include <stdio.h>

/* --- A batch in memory --- */

void kv_event_batch_begin(struct byte_buffer *buffer) {
    const struct kv_event_batch header = {0};
    byte_buffer_clear(buffer);
    buffer->failed = buffer->is_full = false;
    byte_buffer_append(buffer, &header, sizeof(header));
}

static size_t token_bytes(const struct kv_event *event, int32_t block_size) {
    return event->kind == KV_EVENT_STORED ? (size_t)block_size * sizeof(int32_t) : 0;
}

/* With its NUL. */
static size_t name_bytes(const struct kv_event *event) {
    bool has_name = event->kind == KV_EVENT_STORED && event->adapter.name != NULL;
    return has_name ? strlen(event->adapter.name) + 1 : 0;
}

static size_t padding_after(size_t bytes) {
    return (sizeof(int32_t) - bytes % sizeof(int32_t)) % sizeof(int32_t);
}

void kv_event_batch_add(struct byte_buffer *buffer, const struct kv_event *event,
                        const int32_t *tokens, int32_t block_size) {
    byte_buffer_append(buffer, event, sizeof(*event));
    if (tokens != NULL)
        byte_buffer_append(buffer, tokens, token_bytes(event, block_size));
    byte_buffer_append(buffer, event->adapter.name, name_bytes(event));
    byte_buffer_append(buffer, "\0\0\0", padding_after(name_bytes(event)));
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
    if (out->adapter.name != NULL)
        out->adapter.name = iterator->at;
    iterator->at += name_bytes(out) + padding_after(name_bytes(out));
    CHECK(iterator->at <= iterator->end);
    return true;
}

/* --- And on the wire --- */

/* msgpack-c writes an array's length first, so what is written is walked through before: a run of
 * events that one of vLLM's events can say is found, counted, and then written. */

#define DEVICE_MEDIUM "GPU"
#define HOST_MEDIUM "CPU"

struct run {
    struct kv_event first;
    struct kv_event_iterator events; /* its first event is the next */
    size_t num_events;
};

static bool continues(const struct kv_event *last, const struct kv_event *next) {
    if (next->kind != last->kind || next->kind == KV_EVENT_CLEARED)
        return false;
    return next->kind != KV_EVENT_STORED ||
           (!next->is_first && next->adapter.id == last->adapter.id &&
            block_key_equal(&next->previous, &last->key));
}

/* Advances the iterator past the run. Returns false at the end. */
static bool next_run(struct kv_event_iterator *events, struct run *out) {
    const int32_t *tokens;
    *out = (struct run){.events = *events, .num_events = 1};
    if (!kv_event_iterator_next(events, &out->first, &tokens))
        return false;
    struct kv_event last = out->first, next;
    struct kv_event_iterator ahead = *events;
    while (kv_event_iterator_next(&ahead, &next, &tokens) && continues(&last, &next)) {
        *events = ahead;
        last = next;
        out->num_events++;
    }
    return true;
}

static int append(void *out, const char *data, size_t length) {
    byte_buffer_append(out, data, length);
    return 0;
}

static void write_text(msgpack_packer *out, const char *text) {
    msgpack_pack_str_with_body(out, text, strlen(text));
}

static void write_nil_member(msgpack_packer *out, const char *name) {
    write_text(out, name);
    msgpack_pack_nil(out);
}

static void write_adapter_id(msgpack_packer *out, const struct block_adapter *adapter) {
    if (adapter->name == NULL) {
        write_nil_member(out, "lora_id");
        return;
    }
    write_text(out, "lora_id");
    msgpack_pack_int32(out, adapter->id);
}

static void write_adapter_name(msgpack_packer *out, const struct block_adapter *adapter) {
    if (adapter->name == NULL) {
        write_nil_member(out, "lora_name");
        return;
    }
    write_text(out, "lora_name");
    write_text(out, adapter->name);
}

static void write_hashes(msgpack_packer *out, const struct run *run) {
    struct kv_event_iterator events = run->events;
    struct kv_event event;
    const int32_t *tokens;
    write_text(out, "block_hashes");
    msgpack_pack_array(out, run->num_events);
    for (size_t i = 0; i < run->num_events && kv_event_iterator_next(&events, &event, &tokens); i++)
        msgpack_pack_uint64(out, event.key.low);
}

static void write_parent(msgpack_packer *out, const struct run *run) {
    if (run->first.is_first) {
        write_nil_member(out, "parent_block_hash");
        return;
    }
    write_text(out, "parent_block_hash");
    msgpack_pack_uint64(out, run->first.previous.low);
}

static void write_tokens(msgpack_packer *out, const struct run *run) {
    struct kv_event_iterator events = run->events;
    struct kv_event event;
    const int32_t *tokens;
    write_text(out, "token_ids");
    msgpack_pack_array(out, run->num_events * (size_t)events.block_size);
    for (size_t i = 0; i < run->num_events && kv_event_iterator_next(&events, &event, &tokens); i++)
        for (int32_t t = 0; t < events.block_size; t++)
            msgpack_pack_int32(out, tokens[t]);
}

static void write_extra_keys(msgpack_packer *out, const struct run *run) {
    char digest[33];
    const struct block_key *root = &run->first.previous;
    snprintf(digest, sizeof(digest), "%016" PRIx64 "%016" PRIx64, root->high, root->low);
    write_text(out, "extra_keys");
    msgpack_pack_array(out, run->num_events);
    msgpack_pack_array(out, 1);
    write_text(out, digest);
    for (size_t i = 1; i < run->num_events; i++)
        msgpack_pack_nil(out);
}

static void write_medium(msgpack_packer *out, const char *medium) {
    write_text(out, "medium");
    write_text(out, medium);
}

static void begin_event(msgpack_packer *out, size_t num_members, const char *type) {
    msgpack_pack_map(out, num_members);
    write_text(out, "type");
    write_text(out, type);
}

static void write_stored(msgpack_packer *out, const struct run *run) {
    bool has_extra_keys = run->first.is_first && run->first.is_private;
    begin_event(out, has_extra_keys ? 9 : 8, "BlockStored");
    write_hashes(out, run);
    write_parent(out, run);
    write_tokens(out, run);
    write_text(out, "block_size");
    msgpack_pack_int32(out, run->events.block_size);
    write_adapter_id(out, &run->first.adapter);
    write_medium(out, DEVICE_MEDIUM);
    write_adapter_name(out, &run->first.adapter);
    if (has_extra_keys)
        write_extra_keys(out, run);
}

static void write_removed(msgpack_packer *out, const struct run *run, const char *medium) {
    begin_event(out, 3, "BlockRemoved");
    write_hashes(out, run);
    write_medium(out, medium);
}

static void write_kept(msgpack_packer *out, const struct run *run) {
    begin_event(out, 8, "BlockStored");
    write_hashes(out, run);
    write_nil_member(out, "parent_block_hash");
    write_text(out, "token_ids");
    msgpack_pack_array(out, 0);
    write_text(out, "block_size");
    msgpack_pack_int32(out, run->events.block_size);
    write_nil_member(out, "lora_id");
    write_medium(out, HOST_MEDIUM);
    write_nil_member(out, "lora_name");
}

static void write_run(msgpack_packer *out, const struct run *run) {
    switch (run->first.kind) {
    case KV_EVENT_STORED:
        write_stored(out, run);
        break;
    case KV_EVENT_REMOVED:
        write_removed(out, run, DEVICE_MEDIUM);
        break;
    case KV_EVENT_KEPT:
        write_kept(out, run);
        break;
    case KV_EVENT_DROPPED:
        write_removed(out, run, HOST_MEDIUM);
        break;
    case KV_EVENT_CLEARED:
        begin_event(out, 1, "AllBlocksCleared");
        break;
    }
}

static size_t count_runs(struct kv_event_iterator events) {
    struct run run;
    size_t count = 0;
    while (next_run(&events, &run))
        count++;
    return count;
}

void kv_event_format(const struct kv_event_batch *batch, struct kv_event_iterator events,
                     struct byte_buffer *out) {
    msgpack_packer packer;
    struct run run;
    msgpack_packer_init(&packer, out, append);
    msgpack_pack_array(&packer, 3);
    msgpack_pack_double(&packer, batch->time_s);
    msgpack_pack_array(&packer, count_runs(events));
    while (next_run(&events, &run))
        write_run(&packer, &run);
    msgpack_pack_int32(&packer, 0);
}
