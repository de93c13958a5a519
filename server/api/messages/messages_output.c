#include "server/api/messages/messages_output.h"

#include "config/base/array.h"
#include "config/base/random_id.h"
#include "server/api/call/api_call_format.h"
#include "config/json/json_write.h"

#include <stdlib.h>
#include <string.h>

#define NUM_ID_DIGITS 24

void messages_event_begin(const char *type, struct byte_buffer *events) {
    byte_buffer_printf(events, "event: %s\ndata: ", type);
    json_write_begin_object(events);
    json_write_text_member(events, "type", type);
}

void messages_event_end(struct byte_buffer *events) {
    json_write_end_object(events);
    api_call_end_frame(events);
}

size_t messages_output_bytes(const struct messages_output *output) {
    size_t bytes = output->capacity * sizeof(*output->blocks);
    for (int32_t i = 0; i < output->num_blocks; i++)
        bytes += output->blocks[i].name.capacity + output->blocks[i].text.capacity;
    return bytes;
}

void messages_output_finish(struct messages_output *output) {
    for (int32_t i = 0; i < output->num_blocks; i++) {
        byte_buffer_finish(&output->blocks[i].name);
        byte_buffer_finish(&output->blocks[i].text);
    }
    free(output->blocks);
    *output = (struct messages_output){0};
}

/* --- A block as JSON --- */

/* The start of a block in a stream has no text and no signature yet. */
static void write_block(const struct messages_block *block, bool is_beginning,
                        struct byte_buffer *out) {
    json_write_begin_object(out);
    if (block->kind == OUTPUT_PART_TOOL_CALL) {
        json_write_text_member(out, "type", "tool_use");
        json_write_text_member(out, "id", block->id);
        json_write_string_member(out, "name", &block->name);
        json_write_key(out, "input");
        api_call_format_arguments(&block->text, out);
    } else if (block->kind == OUTPUT_PART_REASONING) {
        json_write_text_member(out, "type", "thinking");
        json_write_string_member(out, "thinking", &block->text);
        json_write_text_member(out, "signature", is_beginning ? "" : block->id);
    } else {
        json_write_text_member(out, "type", "text");
        json_write_string_member(out, "text", &block->text);
    }
    json_write_end_object(out);
}

void messages_output_format(const struct messages_output *output, struct byte_buffer *out) {
    json_write_begin_array(out);
    for (int32_t i = 0; i < output->num_blocks; i++)
        write_block(&output->blocks[i], false, out);
    json_write_end_array(out);
}

/* --- Events --- */

static void begin_block_event(const struct messages_output *output, const char *type,
                              struct byte_buffer *events) {
    messages_event_begin(type, events);
    json_write_int_member(events, "index", output->num_blocks - 1);
}

static void write_start(const struct messages_output *output, struct byte_buffer *events) {
    begin_block_event(output, "content_block_start", events);
    json_write_key(events, "content_block");
    write_block(&output->blocks[output->num_blocks - 1], true, events);
    messages_event_end(events);
}

static void write_delta(const struct messages_output *output, const char *type, const char *name,
                        const char *text, size_t length, struct byte_buffer *events) {
    begin_block_event(output, "content_block_delta", events);
    json_write_key(events, "delta");
    json_write_begin_object(events);
    json_write_text_member(events, "type", type);
    json_write_key(events, name);
    json_write_string(events, text, length);
    json_write_end_object(events);
    messages_event_end(events);
}

static void write_part(const struct messages_output *output, const struct output_part *part,
                       struct byte_buffer *events) {
    switch (part->kind) {
    case OUTPUT_PART_REASONING:
        write_delta(output, "thinking_delta", "thinking", part->text, part->length, events);
        break;
    case OUTPUT_PART_CONTENT:
        write_delta(output, "text_delta", "text", part->text, part->length, events);
        break;
    default:
        write_delta(output, "input_json_delta", "partial_json", part->text, part->length, events);
    }
}

static void write_stop(const struct messages_output *output, struct byte_buffer *events) {
    const struct messages_block *block = &output->blocks[output->num_blocks - 1];
    if (block->kind == OUTPUT_PART_REASONING)
        write_delta(output, "signature_delta", "signature", block->id, strlen(block->id), events);
    begin_block_event(output, "content_block_stop", events);
    messages_event_end(events);
}

/* --- Steps --- */

void messages_output_close(struct messages_output *output, struct byte_buffer *events) {
    if (output->is_open && events != NULL)
        write_stop(output, events);
    output->is_open = false;
}

/* Clients drop thinking that has no signature. This signature proves nothing: a client that sends
 * thinking could say the same in any other message. */
static int make_id(struct messages_block *block) {
    const char *prefix = block->kind == OUTPUT_PART_TOOL_CALL ? "toolu_" : "sig_";
    return random_id(prefix, NUM_ID_DIGITS, block->id, sizeof(block->id));
}

static int open_block(struct messages_output *output, const struct output_part *part,
                      struct byte_buffer *events) {
    if (!array_reserve(&output->blocks, &output->capacity, (size_t)output->num_blocks + 1,
                       sizeof(*output->blocks)))
        return -1;
    struct messages_block *block = &output->blocks[output->num_blocks++];
    *block = (struct messages_block){.kind = part->kind};
    if (part->kind == OUTPUT_PART_TOOL_CALL) {
        byte_buffer_append(&block->name, part->text, part->length);
        output->num_tool_uses++;
    }
    if (block->name.failed || make_id(block) != 0)
        return -1;
    output->is_open = true;
    if (events != NULL)
        write_start(output, events);
    return 0;
}

/* Returns whether the part does not continue the open block. */
static bool begins_block(const struct messages_output *output, const struct output_part *part) {
    if (part->kind == OUTPUT_PART_TOOL_CALL || !output->is_open)
        return true;
    return part->kind != OUTPUT_PART_TOOL_ARGUMENTS &&
           output->blocks[output->num_blocks - 1].kind != part->kind;
}

int messages_output_add(struct messages_output *output, const struct output_part *part,
                        struct byte_buffer *events) {
    if (begins_block(output, part)) {
        messages_output_close(output, events);
        if (open_block(output, part, events) != 0)
            return -1;
    }
    if (part->kind == OUTPUT_PART_TOOL_CALL ||
        (part->kind == OUTPUT_PART_REASONING && output->omits_thinking))
        return 0;
    if (events != NULL) {
        write_part(output, part, events);
        return 0;
    }
    struct messages_block *block = &output->blocks[output->num_blocks - 1];
    byte_buffer_append(&block->text, part->text, part->length);
    return block->text.failed ? -1 : 0;
}
