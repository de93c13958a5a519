#include "server/api/responses/responses_output.h"

#include "config/base/array.h"
#include "config/base/random_id.h"
#include "server/api/call/api_call_type.h"
#include "server/api/responses/responses_body.h"
#include "config/json/json_write.h"
#include "server/output/json_stream.h"

#include <stdlib.h>

void responses_event_begin(struct responses_output *output, const char *type,
                           struct byte_buffer *events) {
    byte_buffer_printf(events, "event: %s\ndata: ", type);
    json_write_begin_object(events);
    json_write_text_member(events, "type", type);
    json_write_int_member(events, "sequence_number", output->sequence++);
}

void responses_event_end(struct byte_buffer *events) {
    json_write_end_object(events);
    byte_buffer_append_text(events, "\n\n");
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
    byte_buffer_finish(&output->namespaced);
    free(output->items);
    *output = (struct responses_output){0};
}

/* --- An item as JSON --- */

/* Writes the only part of a message or of reasoning. */
static void write_part(const struct responses_item *item, struct byte_buffer *out) {
    json_write_begin_object(out);
    if (item->kind == OUTPUT_PART_REASONING) {
        json_write_text_member(out, "type", "reasoning_text");
    } else {
        json_write_text_member(out, "type", "output_text");
        json_write_raw_member(out, "annotations", "[]");
        json_write_array_member(out, "logprobs", &item->logprobs);
    }
    json_write_string_member(out, "text", &item->text);
    json_write_end_object(out);
}

static void write_item(const struct responses_item *item, const char *status, bool with_content,
                       struct byte_buffer *out) {
    static const char *const types[] = {
        [OUTPUT_PART_REASONING] = "reasoning",
        [OUTPUT_PART_CONTENT] = "message",
        [OUTPUT_PART_TOOL_CALL] = "function_call",
    };
    json_write_begin_object(out);
    json_write_text_member(out, "id", item->id);
    json_write_text_member(out, "type", item->is_custom ? "custom_tool_call" : types[item->kind]);
    json_write_text_member(out, "status", status);
    if (item->kind == OUTPUT_PART_TOOL_CALL) {
        json_write_text_member(out, "call_id", item->call_id);
        json_write_string_member(out, "name", &item->name);
        if (item->space != NULL)
            json_write_text_member(out, "namespace", item->space);
        json_write_string_member(out, item->is_custom ? "input" : "arguments", &item->text);
    } else {
        if (item->kind == OUTPUT_PART_CONTENT)
            json_write_text_member(out, "role", "assistant");
        else
            json_write_raw_member(out, "summary", "[]");
        json_write_key(out, "content");
        json_write_begin_array(out);
        if (with_content)
            write_part(item, out);
        json_write_end_array(out);
    }
    json_write_end_object(out);
}

static void write_whole(const struct responses_output *output, int32_t index, bool is_cut,
                        struct byte_buffer *out) {
    bool is_last = index + 1 == output->num_items;
    is_cut = output->items[index].is_cut || (is_last && is_cut);
    write_item(&output->items[index], is_cut ? "incomplete" : "completed", true, out);
}

void responses_output_format(const struct responses_output *output, bool is_cut,
                             struct byte_buffer *out) {
    json_write_begin_array(out);
    for (int32_t i = 0; i < output->num_items; i++)
        write_whole(output, i, is_cut, out);
    json_write_end_array(out);
}

void responses_output_write_line(const struct responses_output *output, int32_t index, bool is_cut,
                                 struct byte_buffer *out) {
    write_whole(output, index, is_cut, out);
    byte_buffer_append(out, "\n", 1);
}

/* --- Events --- */

static void write_place(const struct responses_output *output, bool with_part,
                        struct byte_buffer *events) {
    const struct responses_item *item = &output->items[output->num_items - 1];
    json_write_text_member(events, "item_id", item->id);
    json_write_int_member(events, "output_index", output->num_items - 1);
    if (with_part)
        json_write_int_member(events, "content_index", 0);
}

static void write_item_event(struct responses_output *output, const char *type, const char *status,
                             bool with_content, struct byte_buffer *events) {
    responses_event_begin(output, type, events);
    json_write_int_member(events, "output_index", output->num_items - 1);
    json_write_key(events, "item");
    write_item(&output->items[output->num_items - 1], status, with_content, events);
    responses_event_end(events);
}

static void write_part_event(struct responses_output *output, const char *type,
                             struct byte_buffer *events) {
    responses_event_begin(output, type, events);
    write_place(output, true, events);
    json_write_key(events, "part");
    write_part(&output->items[output->num_items - 1], events);
    responses_event_end(events);
}

static void write_delta(struct responses_output *output, const struct output_part *part,
                        const struct byte_buffer *logprobs, struct byte_buffer *events) {
    static const char *const types[] = {
        [OUTPUT_PART_REASONING] = "response.reasoning_text.delta",
        [OUTPUT_PART_CONTENT] = "response.output_text.delta",
        [OUTPUT_PART_TOOL_ARGUMENTS] = "response.function_call_arguments.delta",
    };
    static const struct byte_buffer none = {0};
    responses_event_begin(
        output, part->is_custom ? "response.custom_tool_call_input.delta" : types[part->kind],
        events);
    write_place(output, part->kind != OUTPUT_PART_TOOL_ARGUMENTS, events);
    json_write_key(events, "delta");
    json_write_string(events, part->text, part->length);
    if (part->kind == OUTPUT_PART_CONTENT)
        json_write_array_member(events, "logprobs", logprobs != NULL ? logprobs : &none);
    responses_event_end(events);
}

static void write_text_done(struct responses_output *output, struct byte_buffer *events) {
    const struct responses_item *item = &output->items[output->num_items - 1];
    bool is_reasoning = item->kind == OUTPUT_PART_REASONING;
    responses_event_begin(
        output, is_reasoning ? "response.reasoning_text.done" : "response.output_text.done",
        events);
    write_place(output, true, events);
    json_write_string_member(events, "text", &item->text);
    if (!is_reasoning)
        json_write_array_member(events, "logprobs", &item->logprobs);
    responses_event_end(events);
    write_part_event(output, "response.content_part.done", events);
}

static void write_arguments_done(struct responses_output *output, struct byte_buffer *events) {
    const struct responses_item *item = &output->items[output->num_items - 1];
    if (item->is_custom) {
        responses_event_begin(output, "response.custom_tool_call_input.done", events);
        write_place(output, false, events);
        json_write_string_member(events, "input", &item->text);
        responses_event_end(events);
        return;
    }
    responses_event_begin(output, "response.function_call_arguments.done", events);
    write_place(output, false, events);
    json_write_string_member(events, "name", &item->name);
    json_write_string_member(events, "arguments", &item->text);
    responses_event_end(events);
}

static void write_done(struct responses_output *output, bool is_cut, struct byte_buffer *events) {
    if (output->items[output->num_items - 1].kind == OUTPUT_PART_TOOL_CALL)
        write_arguments_done(output, events);
    else
        write_text_done(output, events);
    write_item_event(output, "response.output_item.done", is_cut ? "incomplete" : "completed", true,
                     events);
}

/* --- Steps --- */

/* Returns whether the item is not a tool call, or is one whose arguments are complete, or nested
 * too deeply to be checked here. Unknown for the input of a custom tool. */
static bool is_whole(const struct responses_item *item) {
    struct json_stream json;
    enum json_stream_step step = JSON_STREAM_MORE;
    json_stream_init(&json);
    for (size_t i = 0; i < item->text.length && step == JSON_STREAM_MORE; i++)
        step = json_stream_push(&json, item->text.data[i]);
    return item->kind != OUTPUT_PART_TOOL_CALL || item->is_custom || step != JSON_STREAM_MORE;
}

static void close_item(struct responses_output *output, bool is_cut, struct byte_buffer *events) {
    if (!output->is_open)
        return;
    struct responses_item *item = &output->items[output->num_items - 1];
    output->is_open = false;
    item->is_cut = is_cut || !is_whole(item);
    if (events != NULL)
        write_done(output, item->is_cut, events);
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

static void name_call(const struct responses_output *output, const struct output_part *part,
                      struct responses_item *item) {
    const struct text function = {part->text, part->length};
    const char *name;
    if (responses_tools_find(&output->namespaced, function, &item->space, &name))
        byte_buffer_append_text(&item->name, name);
    else
        byte_buffer_append(&item->name, part->text, part->length);
}

static int open_item(struct responses_output *output, const struct output_part *part,
                     struct byte_buffer *events) {
    enum output_part_kind kind = part->kind;
    static const char *const prefixes[] = {
        [OUTPUT_PART_REASONING] = "rs_",
        [OUTPUT_PART_CONTENT] = "msg_",
        [OUTPUT_PART_TOOL_CALL] = "fc_",
    };
    struct responses_item *item = add_item(output, kind);
    const char *prefix = part->is_custom ? "ctc_" : prefixes[kind];
    if (item == NULL || random_id(prefix, RANDOM_ID_MAX_DIGITS, item->id, sizeof(item->id)) != 0 ||
        random_id("call_", RANDOM_ID_MAX_DIGITS, item->call_id, sizeof(item->call_id)) != 0)
        return -1;
    item->is_custom = part->is_custom;
    if (kind == OUTPUT_PART_TOOL_CALL)
        name_call(output, part, item);
    output->is_open = true;
    if (events == NULL)
        return item->name.failed ? -1 : 0;
    write_item_event(output, "response.output_item.added", "in_progress", false, events);
    if (kind != OUTPUT_PART_TOOL_CALL)
        write_part_event(output, "response.content_part.added", events);
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
    close_item(output, false, events);
    return open_item(output, part, events);
}

int responses_output_add(struct responses_output *output, const struct output_part *part,
                         const struct byte_buffer *logprobs, struct byte_buffer *events) {
    if (prepare_item(output, part, events) != 0)
        return -1;
    if (part->kind == OUTPUT_PART_TOOL_CALL)
        return 0;
    struct responses_item *item = &output->items[output->num_items - 1];
    byte_buffer_append(&item->text, part->text, part->length);
    if (logprobs != NULL)
        json_write_items(&item->logprobs, logprobs);
    if (events != NULL)
        write_delta(output, part, logprobs, events);
    return item->text.failed || item->logprobs.failed ? -1 : 0;
}

int responses_output_close(struct responses_output *output, bool is_cut,
                           struct byte_buffer *events) {
    const struct output_part empty = {.kind = OUTPUT_PART_CONTENT};
    if (output->num_items == 0 && open_item(output, &empty, events) != 0)
        return -1;
    close_item(output, is_cut, events);
    return 0;
}
