/* The arguments of a tool call whose format writes them one by one, as names with values that stand
 * for themselves (no quotes around strings): made into a JSON object while they come.
 *
 * A string of the tool's schema streams. Any other value is held to its end, which shows whether it
 * is JSON (json_stream.h: True and None too, which some templates write); if not, or if it is
 * longer than TEXT_MARKER_MAX_HELD_BYTES, it is a string. */
#ifndef QUIRE_SERVER_OUTPUT_TOOL_MEMBERS_H
#define QUIRE_SERVER_OUTPUT_TOOL_MEMBERS_H

#include "server/output/parameter_types.h"
#include "server/output/tool_call.h"

struct tool_members {
    struct tool_call_sink *sink; /* borrowed */
    const char *types;           /* of the call's parameters: parameter_types_of; borrowed */
    enum parameter_type type;    /* of the value */
    bool is_string;              /* the value's first quote is out */
    struct byte_buffer held;     /* of the value; owned */
};

/* Makes a call of a name that the sink takes ready; nothing is out yet. */
void tool_members_begin(struct tool_members *members, struct tool_call_sink *sink,
                        struct text types, const char *name, size_t length);
/* Begins a value; with the first one the call, whose name is given again. */
void tool_members_key(struct tool_members *members, struct text function, struct text key);
void tool_members_value(struct tool_members *members, const char *text, size_t length);
void tool_members_end_value(struct tool_members *members);
void tool_members_finish(struct tool_members *members);

#endif
