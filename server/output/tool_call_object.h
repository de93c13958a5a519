/* One call written as a JSON object, byte by byte: its name under "name", its arguments under
 * "arguments" or "parameters", in any order, among keys that are passed over.
 *
 * The call goes to the sink with the first byte of its arguments if the name is known by then, else
 * with the name; an object that ends with a name alone, where the format lets it, is a call without
 * arguments. From there on the arguments flow. */
#ifndef QUIRE_SERVER_OUTPUT_TOOL_CALL_OBJECT_H
#define QUIRE_SERVER_OUTPUT_TOOL_CALL_OBJECT_H

#include "server/output/tool_call_arguments.h"
#include "server/output/tool_call_sink.h"
#include "server/output/json_unescape.h"

enum tool_call_step {
    TOOL_CALL_MORE,
    TOOL_CALL_DONE, /* the byte is the call's last, and the call is out */
    TOOL_CALL_BAD, /* no call, or a broken one; whether something is out tells the sink's is_open */
};

enum tool_call_object_state {
    TOOL_CALL_OBJECT_OPEN,
    TOOL_CALL_OBJECT_KEY,
    TOOL_CALL_OBJECT_IN_KEY,
    TOOL_CALL_OBJECT_COLON,
    TOOL_CALL_OBJECT_NAME,
    TOOL_CALL_OBJECT_IN_NAME,
    TOOL_CALL_OBJECT_IN_ARGUMENTS,
    TOOL_CALL_OBJECT_IN_OTHER,
    TOOL_CALL_OBJECT_AFTER_VALUE,
};

struct tool_call_object {
    struct tool_call_sink *sink; /* borrowed */
    bool needs_arguments;
    bool is_bare; /* the arguments alone, of a call whose name is known */
    enum tool_call_object_state state;
    struct json_stream json;                   /* of the key, the name or the value passed over */
    char word[OUTPUT_MAX_TOOL_NAME_BYTES + 1]; /* the key or the name being read, unescaped */
    size_t word_length;
    struct json_unescape unescape; /* of the word */
    char name[OUTPUT_MAX_TOOL_NAME_BYTES];
    size_t name_length; /* 0: not known yet */
    bool has_arguments;
    struct tool_call_arguments arguments;
    struct byte_buffer waiting; /* arguments that the sink has not taken; owned */
};

/* The struct is zeroed or was used before. needs_arguments: without them it is no call. */
void tool_call_object_begin(struct tool_call_object *object, struct tool_call_sink *sink,
                            bool needs_arguments);
/* The name was read elsewhere: the arguments alone follow. */
void tool_call_object_begin_named(struct tool_call_object *object, struct tool_call_sink *sink,
                                  const char *name, size_t length);
enum tool_call_step tool_call_object_push(struct tool_call_object *object, char byte);
void tool_call_object_finish(struct tool_call_object *object);

#endif
