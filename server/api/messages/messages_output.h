/* The output of a message: content blocks that come one after the other, each of them thinking,
 * text or tool_use; kept to be written whole, or written as the events of a stream at once. */
#ifndef QUIRE_SERVER_API_MESSAGES_MESSAGES_OUTPUT_H
#define QUIRE_SERVER_API_MESSAGES_MESSAGES_OUTPUT_H

#include "config/base/byte_buffer.h"
#include "server/output/output_parser.h"

#include <stdbool.h>
#include <stdint.h>

struct messages_block {
    enum output_part_kind kind; /* REASONING (thinking), CONTENT (text) or TOOL_CALL (tool_use) */
    char id[48];                /* of a tool_use; the signature of thinking */
    struct byte_buffer name;    /* of the tool */
    struct byte_buffer text;    /* of the block, or the call's input; a stream's stays empty */
};

/* A zeroed struct is an empty output. */
struct messages_output {
    struct messages_block *blocks; /* [num_blocks]; the last one may be open */
    int32_t num_blocks, num_tool_uses;
    size_t capacity;
    bool is_open;
    bool omits_thinking; /* the caller's: thinking blocks have no text */
};

/* Returns the bytes of memory that grows with the output. */
size_t messages_output_bytes(const struct messages_output *output);
void messages_output_finish(struct messages_output *output);

/* Adds a part: to the blocks that are kept or, where events is not NULL, as a stream's events. -1
 * when memory is short. */
int messages_output_add(struct messages_output *output, const struct output_part *part,
                        struct byte_buffer *events);
/* Ends the last block. */
void messages_output_close(struct messages_output *output, struct byte_buffer *events);
/* Writes the array of all blocks; of no stream. The input of a call that is no whole JSON object,
 * as it was cut off, is {}. */
void messages_output_format(const struct messages_output *output, struct byte_buffer *out);

/* Write event: TYPE, and the start of its object: "type"; then the end of both. */
void messages_event_begin(const char *type, struct byte_buffer *events);
void messages_event_end(struct byte_buffer *events);

#endif
