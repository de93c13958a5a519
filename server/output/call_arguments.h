/* The value of a call's arguments, byte by byte: an object, passed on as it is written; a string
 * that holds the object, passed on as its content; null, which is no arguments. */
#ifndef QUIRE_SERVER_OUTPUT_CALL_ARGUMENTS_H
#define QUIRE_SERVER_OUTPUT_CALL_ARGUMENTS_H

#include "server/byte_buffer.h"
#include "server/output/json_stream.h"
#include "server/output/json_unescape.h"

struct call_arguments {
    enum {
        CALL_ARGUMENTS_NONE,
        CALL_ARGUMENTS_OBJECT,
        CALL_ARGUMENTS_STRING,
        CALL_ARGUMENTS_NULL
    } kind;
    struct json_stream json;
    struct json_unescape string;
};

void call_arguments_init(struct call_arguments *arguments);
/* There is something to give out: an object or a string has been opened. */
bool call_arguments_has_begun(const struct call_arguments *arguments);
/* Appends what the byte releases to out. White space may come first. BAD also for other kinds of
 * value. */
enum json_stream_step call_arguments_push(struct call_arguments *arguments, char byte,
                                          struct byte_buffer *out);

#endif
