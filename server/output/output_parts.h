/* The queue of an output parser's released parts: neighbours of one kind are one part. A zeroed
 * struct is an empty queue. */
#ifndef QUIRE_SERVER_OUTPUT_OUTPUT_PARTS_H
#define QUIRE_SERVER_OUTPUT_OUTPUT_PARTS_H

#include "server/output/output_parser.h"

struct output_part_entry {
    enum output_part_kind kind;
    int32_t tool_index;
    size_t start, length; /* in text */
};

struct output_parts {
    struct byte_buffer text;
    struct byte_buffer entries; /* struct output_part_entry, in order */
    size_t num_taken;
};

/* Adds text to the queue's end; an empty text adds nothing. Short memory shows in
 * output_parts_failed. */
void output_parts_add(struct output_parts *parts, enum output_part_kind kind, int32_t tool_index,
                      const char *text, size_t length);
bool output_parts_failed(const struct output_parts *parts);
/* Takes the oldest part; false when there is none. Its text lives until the next add. */
bool output_parts_take(struct output_parts *parts, struct output_part *out);
void output_parts_clear(struct output_parts *parts);
void output_parts_finish(struct output_parts *parts);

#endif
