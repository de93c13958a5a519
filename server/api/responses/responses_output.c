#include "server/api/responses/responses_output.h"

#include "config/base/array.h"
#include "config/base/random_id.h"
#include "server/api/api_call_type.h"
#include "server/json/json_write.h"

#include <stdlib.h>

void responses_event_begin(struct responses_output *output, const char *type,
                           struct byte_buffer *events) {
    byte_buffer_printf(events, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%lld", type,
                       type, (long long)output->sequence++);
}

void responses_event_end(struct byte_buffer *events) {
    byte_buffer_append_text(events, "}\n\n");
}

size_t responses_output_bytes(const struct responses_output *output) {
    size_t bytes = 0;
    for (int32_t i = 0; i < output->num_items; i++) {
        const struct responses_item *item = &output->items[i];
        bytes += item->name.capacity + item->text.capacity + item->logprobs.capacity;
    }
    return bytes;
}

void responses_output_finish(struct responses_output *output) {
    for (int32_t i = 0; i < output->num_items; i++) {
        byte_buffer_finish(&output->items[i].name);
        byte_buffer_finish(&output->items[i].text);
        byte_buffer_finish(&output->items[i].logprobs);
    }
    free(output->items);
    *output = (struct responses_output){0};
}

/* --- An item as JSON --- */

static void write_member(const char *name, const struct byte_buffer *text,
                         struct byte_buffer *out) {
    byte_buffer_printf(out, ",\"%s\":", name);
    json_write_string(out, text->data, text->length);
}

/* Writes a message's or reasoning's one part. */
static void write_part(const struct responses_item *item, struct byte_buffer *out) {
    if (item->kind == OUTPUT_PART_REASONING) {
        byte_buffer_append_text(out, "{\"type\":\"reasoning_text\"");
        write_member("text", &item->text, out);
    } else {
        byte_buffer_append_text(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[");
        byte_buffer_append(out, item->logprobs.data, item->logprobs.length);
        byte_buffer_append(out, "]", 1);
        write_member("text", &item->text, out);
    }
    byte_buffer_append(out, "}", 1);
}

static void write_item(const struct responses_item *item, const char *status, bool with_content,
                       struct byte_buffer *out) {
    static const char *const types[] = {
        [OUTPUT_PART_REASONING] = "reasoning",
        [OUTPUT_PART_CONTENT] = "message",
        [OUTPUT_PART_TOOL_CALL] = "function_call",
    };
    byte_buffer_printf(out, "{\"id\":\"%s\",\"type\":\"%s\",\"status\":\"%s\"", item->id,
                       types[item->kind], status);
    if (item->kind == OUTPUT_PART_TOOL_CALL) {
        byte_buffer_printf(out, ",\"call_id\":\"%s\"", item->call_id);
        write_member("name", &item->name, out);
        write_member("arguments", &item->text, out);
    } else {
        byte_buffer_append_text(out, item->kind == OUTPUT_PART_CONTENT
                                         ? ",\"role\":\"assistant\",\"content\":["
                                         : ",\"summary\":[],\"content\":[");
        if (with_content)
            write_part(item, out);
        byte_buffer_append(out, "]", 1);
    }
    byte_buffer_append(out, "}", 1);
}

void responses_output_format(const struct responses_output *output, bool is_cut,
                             struct byte_buffer *out) {
    byte_buffer_append(out, "[", 1);
    for (int32_t i = 0; i < output->num_items; i++) {
        bool is_last = i + 1 == output->num_items;
        if (i > 0)
            byte_buffer_append(out, ",", 1);
        write_item(&output->items[i], is_last && is_cut ? "incomplete" : "completed", true, out);
    }
    byte_buffer_append(out, "]", 1);
}

/* --- Events --- */

static void write_place(const struct responses_output *output, bool with_part,
                        struct byte_buffer *events) {
    const struct responses_item *item = &output->items[output->num_items - 1];
    byte_buffer_printf(events, ",\"item_id\":\"%s\",\"output_index\":%d", item->id,
                       (int)output->num_items - 1);
    if (with_part)
        byte_buffer_append_text(events, ",\"content_index\":0");
}

static void tell_item(struct responses_output *output, const char *type, const char *status,
                      bool with_content, struct byte_buffer *events) {
    responses_event_begin(output, type, events);
    byte_buffer_printf(events, ",\"output_index\":%d,\"item\":", (int)output->num_items - 1);
    write_item(&output->items[output->num_items - 1], status, with_content, events);
    responses_event_end(events);
}

static void tell_part(struct responses_output *output, const char *type,
                      struct byte_buffer *events) {
    responses_event_begin(output, type, events);
    write_place(output, true, events);
    byte_buffer_append_text(events, ",\"part\":");
    write_part(&output->items[output->num_items - 1], events);
    responses_event_end(events);
}

static void tell_delta(struct responses_output *output, const struct output_part *part,
                       const struct byte_buffer *logprobs, struct byte_buffer *events) {
    static const char *const types[] = {
        [OUTPUT_PART_REASONING] = "response.reasoning_text.delta",
        [OUTPUT_PART_CONTENT] = "response.output_text.delta",
        [OUTPUT_PART_TOOL_ARGUMENTS] = "response.function_call_arguments.delta",
    };
    responses_event_begin(output, types[part->kind], events);
    write_place(output, part->kind != OUTPUT_PART_TOOL_ARGUMENTS, events);
    byte_buffer_append_text(events, ",\"delta\":");
    json_write_string(events, part->text, part->length);
    if (part->kind == OUTPUT_PART_CONTENT) {
        byte_buffer_append_text(events, ",\"logprobs\":[");
        if (logprobs != NULL)
            byte_buffer_append(events, logprobs->data, logprobs->length);
        byte_buffer_append(events, "]", 1);
    }
    responses_event_end(events);
}

static void tell_text_done(struct responses_output *output, struct byte_buffer *events) {
    const struct responses_item *item = &output->items[output->num_items - 1];
    bool is_reasoning = item->kind == OUTPUT_PART_REASONING;
    responses_event_begin(
        output, is_reasoning ? "response.reasoning_text.done" : "response.output_text.done",
        events);
    write_place(output, true, events);
    write_member("text", &item->text, events);
    if (!is_reasoning) {
        byte_buffer_append_text(events, ",\"logprobs\":[");
        byte_buffer_append(events, item->logprobs.data, item->logprobs.length);
        byte_buffer_append(events, "]", 1);
    }
    responses_event_end(events);
    tell_part(output, "response.content_part.done", events);
}

static void tell_arguments_done(struct responses_output *output, struct byte_buffer *events) {
    const struct responses_item *item = &output->items[output->num_items - 1];
    responses_event_begin(output, "response.function_call_arguments.done", events);
    write_place(output, false, events);
    write_member("name", &item->name, events);
    write_member("arguments", &item->text, events);
    responses_event_end(events);
}

static void tell_done(struct responses_output *output, bool is_cut, struct byte_buffer *events) {
    if (output->items[output->num_items - 1].kind == OUTPUT_PART_TOOL_CALL)
        tell_arguments_done(output, events);
    else
        tell_text_done(output, events);
    tell_item(output, "response.output_item.done", is_cut ? "incomplete" : "completed", true,
              events);
}

/* --- Steps --- */

static void close_item(struct responses_output *output, bool is_cut, struct byte_buffer *events) {
    if (!output->is_open)
        return;
    output->is_open = false;
    if (events != NULL)
        tell_done(output, is_cut, events);
}

static struct responses_item *add_item(struct responses_output *output,
                                       enum output_part_kind kind) {
    if (!array_reserve(&output->items, &output->capacity, (size_t)output->num_items + 1,
                       sizeof(*output->items)))
        return NULL;
    struct responses_item *item = &output->items[output->num_items++];
    *item = (struct responses_item){.kind = kind};
    return item;
}

static int open_item(struct responses_output *output, enum output_part_kind kind, struct text name,
                     struct byte_buffer *events) {
    static const char *const prefixes[] = {
        [OUTPUT_PART_REASONING] = "rs_",
        [OUTPUT_PART_CONTENT] = "msg_",
        [OUTPUT_PART_TOOL_CALL] = "fc_",
    };
    struct responses_item *item = add_item(output, kind);
    if (item == NULL ||
        random_id(prefixes[kind], RANDOM_ID_MAX_DIGITS, item->id, sizeof(item->id)) != 0 ||
        random_id("call_", RANDOM_ID_MAX_DIGITS, item->call_id, sizeof(item->call_id)) != 0)
        return -1;
    byte_buffer_append(&item->name, name.data, name.length);
    output->is_open = true;
    if (events == NULL)
        return item->name.failed ? -1 : 0;
    tell_item(output, "response.output_item.added", "in_progress", false, events);
    if (kind != OUTPUT_PART_TOOL_CALL)
        tell_part(output, "response.content_part.added", events);
    return item->name.failed ? -1 : 0;
}

/* Returns the item that a part belongs to: the open one, or a new one. */
static int prepare_item(struct responses_output *output, const struct output_part *part,
                        struct byte_buffer *events) {
    bool is_new = part->kind == OUTPUT_PART_TOOL_CALL || !output->is_open;
    if (!is_new && part->kind != OUTPUT_PART_TOOL_ARGUMENTS)
        is_new = output->items[output->num_items - 1].kind != part->kind;
    if (!is_new)
        return 0;
    struct text name = {0};
    if (part->kind == OUTPUT_PART_TOOL_CALL)
        name = (struct text){part->text, part->length};
    close_item(output, false, events);
    return open_item(output, part->kind, name, events);
}

int responses_output_add(struct responses_output *output, const struct output_part *part,
                         const struct byte_buffer *logprobs, struct byte_buffer *events) {
    if (prepare_item(output, part, events) != 0)
        return -1;
    if (part->kind == OUTPUT_PART_TOOL_CALL)
        return 0;
    struct responses_item *item = &output->items[output->num_items - 1];
    byte_buffer_append(&item->text, part->text, part->length);
    if (logprobs != NULL && logprobs->length > 0) {
        if (item->logprobs.length > 0)
            byte_buffer_append(&item->logprobs, ",", 1);
        byte_buffer_append(&item->logprobs, logprobs->data, logprobs->length);
    }
    if (events != NULL)
        tell_delta(output, part, logprobs, events);
    return item->text.failed || item->logprobs.failed ? -1 : 0;
}

int responses_output_close(struct responses_output *output, bool is_cut,
                           struct byte_buffer *events) {
    const struct text no_name = {0};
    if (output->num_items == 0 && open_item(output, OUTPUT_PART_CONTENT, no_name, events) != 0)
        return -1;
    close_item(output, is_cut, events);
    return 0;
}
