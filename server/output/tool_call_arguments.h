/* The value of a call's arguments, byte by byte: an object, passed on as it is written; a string
 * that holds the object, passed on as its content; null, which is no arguments. */
#ifndef QUIRE_SERVER_OUTPUT_TOOL_CALL_ARGUMENTS_H
#define QUIRE_SERVER_OUTPUT_TOOL_CALL_ARGUMENTS_H

#include "server/byte_buffer.h"
#include "server/output/json_stream.h"
#include "server/output/json_unescape.h"

struct tool_call_arguments {
    enum {
        TOOL_CALL_ARGUMENTS_NONE,
        TOOL_CALL_ARGUMENTS_OBJECT,
        TOOL_CALL_ARGUMENTS_STRING,
        TOOL_CALL_ARGUMENTS_NULL
    } kind;
    struct json_stream json;
    struct json_unescape string;
};

void tool_call_arguments_init(struct tool_call_arguments *arguments);
/* There is something to give out: an object or a string has been opened. */
bool tool_call_arguments_has_begun(const struct tool_call_arguments *arguments);
/* Appends what the byte releases to out. White space may come first. BAD also for other kinds of
 * value. */
enum json_stream_step tool_call_arguments_push(struct tool_call_arguments *arguments, char byte,
                                               struct byte_buffer *out);

#endif
