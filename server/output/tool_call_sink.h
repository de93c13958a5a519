/* Where the parsers of tool calls write calls to: counts them and keeps names to what a tool can be
 * called, and may be. */
#ifndef QUIRE_SERVER_OUTPUT_TOOL_CALL_SINK_H
#define QUIRE_SERVER_OUTPUT_TOOL_CALL_SINK_H

#include "server/output/output_parts.h"

struct tool_call_sink {
    struct output_parts *parts; /* borrowed */
    int32_t num_calls;
    bool is_open;              /* a call's name is out and its end has not come */
    bool has_arguments;        /* something of the open call's arguments is out */
    const char *allowed_names; /* borrowed: as in output_parser_config */
    int num_allowed_names;
};

/* What a tool may be called: 1 to OUTPUT_MAX_TOOL_NAME_BYTES letters, digits, '_', '-', '.', ':'
 * and '/': OpenAI's and those that tools of other origins (MCP) have. */
bool tool_call_name_is_valid(const char *name, size_t length);
/* Whether there may be a call of this name: it is valid, and allowed. */
bool tool_call_sink_takes(const struct tool_call_sink *sink, const char *name, size_t length);
/* Whether there may be one more. */
bool tool_call_sink_has_room(const struct tool_call_sink *sink);
/* The name is one it takes, there is room and no call is open. */
void tool_call_sink_begin(struct tool_call_sink *sink, const char *name, size_t length);
/* More of the open call's arguments. */
void tool_call_sink_arguments(struct tool_call_sink *sink, const char *text, size_t length);
/* The open call is complete; without arguments it has "{}". */
void tool_call_sink_end(struct tool_call_sink *sink);

#endif
