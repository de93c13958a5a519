/* The output of a message: consecutive content blocks, each of which is thinking, text or tool_use.
 * They are kept and written together, or written as the events of a stream at once. */
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
    struct byte_buffer text;    /* of the block, or the tool call's input; empty in a stream */
};

/* A zeroed struct is an empty output. */
struct messages_output {
    struct messages_block *blocks; /* [num_blocks]; the last one may be open */
    int32_t num_blocks, num_tool_uses;
    size_t capacity;
    bool is_open;
    bool omits_thinking; /* set by the caller: thinking blocks have no text */
};

/* Returns the bytes of memory, which grows with the output. */
size_t messages_output_bytes(const struct messages_output *output);
void messages_output_finish(struct messages_output *output);

/* Adds a part: to the blocks that are kept or, if events is not NULL, as a stream's events. Returns
 * -1 when memory is short. */
int messages_output_add(struct messages_output *output, const struct output_part *part,
                        struct byte_buffer *events);
/* Ends the last block. */
void messages_output_close(struct messages_output *output, struct byte_buffer *events);
/* Writes the array of all blocks; not for streams. If the input of a tool call was cut off and is
 * not a complete JSON object, writes {} for it. */
void messages_output_format(const struct messages_output *output, struct byte_buffer *out);

/* Write "event: TYPE" and the start of its object, "type"; and the end of both. */
void messages_event_begin(const char *type, struct byte_buffer *events);
void messages_event_end(struct byte_buffer *events);

#endif
