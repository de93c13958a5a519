/* The output of a response: consecutive items, each of which is reasoning, a message or a function
 * call; and for each step, the events of a stream. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_OUTPUT_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_OUTPUT_H

#include "config/base/byte_buffer.h"
#include "server/output/output_parser.h"

#include <stdbool.h>
#include <stdint.h>

struct responses_item {
    enum output_part_kind kind; /* REASONING, CONTENT (a message) or TOOL_CALL */
    bool is_custom;             /* the tool call is a custom tool's */
    const char *space;          /* the namespace of the called tool, in `namespaced`; NULL: none */
    char id[48], call_id[48];
    struct byte_buffer name, text; /* text: a message, or the call's arguments or input */
    struct byte_buffer logprobs;   /* of a message: entries, comma-separated */
    bool is_cut;                   /* it is closed, and incomplete */
};

/* A zeroed struct is an empty output. */
struct responses_output {
    struct responses_item *items; /* [num_items]; the last one is open until close */
    int32_t num_items;
    size_t capacity;
    bool is_open;
    int64_t sequence;              /* number of the next event */
    struct byte_buffer namespaced; /* tools that have a namespace (responses_tools_list) */
};

/* Returns the bytes of memory, which grows with the output. */
size_t responses_output_bytes(const struct responses_output *output);
void responses_output_finish(struct responses_output *output);

/* Adds a part. If events is not NULL, appends the events that a stream gets for it. logprobs:
 * entries that came with a content part, or NULL. Returns -1 when memory is short. */
int responses_output_add(struct responses_output *output, const struct output_part *part,
                         const struct byte_buffer *logprobs, struct byte_buffer *events);
/* Ends the last item; an output without items gets an empty message. is_cut: the length limit ended
 * it. */
int responses_output_close(struct responses_output *output, bool is_cut,
                           struct byte_buffer *events);
/* Writes the array of all items. is_cut as above. */
void responses_output_format(const struct responses_output *output, bool is_cut,
                             struct byte_buffer *out);

/* Writes an item and a line feed. is_cut as above. */
void responses_output_write_line(const struct responses_output *output, int32_t index, bool is_cut,
                                 struct byte_buffer *out);

/* Write "event: TYPE" and the start of its object, "type" and "sequence_number"; and the end of
 * both. */
void responses_event_begin(struct responses_output *output, const char *type,
                           struct byte_buffer *events);
void responses_event_end(struct byte_buffer *events);

#endif
