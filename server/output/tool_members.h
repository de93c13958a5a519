/* Converts the arguments of a tool call to a JSON object as they arrive, for formats that write
 * them one by one as names with raw values (no quotes around strings).
 *
 * A string of the tool's schema streams. Any other value is held until its end, which shows whether
 * it is JSON (json_stream.h, including True and None, which some templates write). If not, or if it
 * is longer than TEXT_MARKER_MAX_HELD_BYTES, it is a string. */
#ifndef QUIRE_SERVER_OUTPUT_TOOL_MEMBERS_H
#define QUIRE_SERVER_OUTPUT_TOOL_MEMBERS_H

#include "server/output/tool_call.h"
#include "config/base/byte_buffer.h"
#include "config/base/text.h"

/* What the tools' schemas say about their parameters, for the formats that write values without the
 * quotes that would distinguish a string from a number. */
enum parameter_type {
    PARAMETER_ANY = 'a', /* another type, several, or unknown: JSON if the value is valid JSON */
    PARAMETER_STRING = 's',
    PARAMETER_NULLABLE_STRING = 'n', /* a string, unless it reads null */
};

/* The types form a text: for each function its name, then for each of its string parameters the
 * type's letter and the name; each with its NUL, and one more NUL at the function's end. These
 * functions append to it. */
void parameter_types_begin(struct byte_buffer *types, const char *function);
void parameter_types_add(struct byte_buffer *types, enum parameter_type type, const char *name);
void parameter_types_end(struct byte_buffer *types);

/* Returns the parameters of a function, for parameter_types_of; NULL: it has no string parameters.
 */
const char *parameter_types_find(struct text types, const char *function, size_t length);
/* Accepts NULL: no parameter's type is known. */
enum parameter_type parameter_types_of(const char *parameters, const char *name, size_t length);

struct tool_members {
    struct tool_call_sink *sink; /* borrowed */
    const char *types;           /* of the call's parameters: parameter_types_of; borrowed */
    enum parameter_type type;    /* of the value */
    bool is_string;              /* the value's first quote is out */
    struct byte_buffer held;     /* of the value; owned */
};

/* Prepares a call of a name that the sink accepts; nothing is released yet. */
void tool_members_begin(struct tool_members *members, struct tool_call_sink *sink,
                        struct text types, const char *name, size_t length);
/* Begins a value; the first one also begins the call, whose name is passed again. */
void tool_members_key(struct tool_members *members, struct text function, struct text key);
void tool_members_value(struct tool_members *members, const char *text, size_t length);
void tool_members_end_value(struct tool_members *members);
void tool_members_finish(struct tool_members *members);

#endif
