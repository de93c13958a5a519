/* One tool call: read as a JSON object, byte by byte, and written to the parts of a choice.
 *
 * The object has the call's name under "name" or "tool_name", its arguments under "arguments" or
 * "parameters", in any order, among keys that are skipped. Non-strict JSON is read as in
 * json_stream.h. The call goes to the sink with the first byte of its arguments if the name is
 * known by then, otherwise with the name. An object that ends with only a name is a call without
 * arguments, if the format allows that. */
#ifndef QUIRE_SERVER_OUTPUT_TOOL_CALL_H
#define QUIRE_SERVER_OUTPUT_TOOL_CALL_H

#include "config/base/byte_buffer.h"
#include "server/output/json_stream.h"
#include "config/json/json_unescape.h"
#include "server/output/output_parser.h"

/* The queue of an output parser's released parts: adjacent parts of the same kind are merged. A
 * zeroed struct is an empty queue. */
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

/* Appends text to the queue; an empty text adds nothing. output_parts_failed tells whether memory
 * was short. */
void output_parts_add(struct output_parts *parts, enum output_part_kind kind, int32_t tool_index,
                      const char *text, size_t length);
bool output_parts_failed(const struct output_parts *parts);
/* Takes the oldest part; false when there is none. Its text lives until the next add. */
bool output_parts_take(struct output_parts *parts, struct output_part *out);
void output_parts_clear(struct output_parts *parts);
void output_parts_finish(struct output_parts *parts);

/* Receives the tool calls that the formats read: counts them, and accepts the names that are valid
 * and allowed. A call is held until it is complete, because clients act on partial calls regardless
 * of the finish reason: LangChain completes the JSON of half the arguments. */
struct tool_call_sink {
    struct output_parts *parts;  /* borrowed */
    struct output_parts pending; /* calls that are held; owned */
    int32_t num_calls, num_out, max_calls;
    bool streams;              /* a grammar writes the calls: only a cut-off can break one */
    bool defers;               /* complete calls are held too, until a release */
    bool is_open;              /* a call's name is known and its end not yet */
    bool is_out;               /* the open call is not held */
    bool is_broken;            /* a released call was not completed, or the next one was cut off */
    bool has_arguments;        /* the open call has a part of its arguments */
    const char *allowed_names; /* borrowed: as in output_parser_config */
    int num_allowed_names;
};

/* Returns whether a tool may have this name: 1 to OUTPUT_MAX_TOOL_NAME_BYTES letters, digits, '_',
 * '-', '.', ':' and '/': those of OpenAI's names and of tools from elsewhere (MCP). */
bool tool_call_name_is_valid(const char *name, size_t length);
/* Returns whether the name is in a list of count names, one after the other, each with its NUL. */
bool tool_call_name_is_listed(const char *names, int count, const char *name, size_t length);
/* Returns whether a call may have this name: it is valid and allowed. */
bool tool_call_sink_takes(const struct tool_call_sink *sink, const char *name, size_t length);
/* Returns whether one more call is allowed. */
bool tool_call_sink_has_room(const struct tool_call_sink *sink);
/* Begins a call. The sink takes the name, has room, and no call is open. */
void tool_call_sink_begin(struct tool_call_sink *sink, const char *name, size_t length);
/* Adds to the open call's arguments. */
void tool_call_sink_arguments(struct tool_call_sink *sink, const char *text, size_t length);
/* Completes the open call; without arguments it gets "{}". */
void tool_call_sink_end(struct tool_call_sink *sink);
/* Releases the held calls; an open one as far as received, and then as it arrives. */
void tool_call_sink_release(struct tool_call_sink *sink);
/* The text was cut off in a call: the released calls are not all that were about to be
 * requested. */
void tool_call_sink_cut(struct tool_call_sink *sink);
/* Drops the calls that are held. */
void tool_call_sink_drop(struct tool_call_sink *sink);
void tool_call_sink_finish(struct tool_call_sink *sink);

/* The value of the arguments: an object; a string that holds the object; null or an empty string,
 * which mean no arguments. */
struct tool_call_arguments {
    enum {
        TOOL_CALL_ARGUMENTS_NONE,
        TOOL_CALL_ARGUMENTS_OBJECT,
        TOOL_CALL_ARGUMENTS_STRING,
        TOOL_CALL_ARGUMENTS_NULL
    } kind;
    struct json_stream json;
    struct json_unescape string;
    struct json_stream inner; /* of the string's object */
    bool has_inner, inner_done;
};

enum tool_call_step {
    TOOL_CALL_MORE,
    TOOL_CALL_DONE, /* the byte is the call's last, and the call is out */
    TOOL_CALL_BAD,  /* not a call, or a broken one */
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
    bool is_bare; /* only the arguments, of a call whose name is known */
    /* If given (in the form of the sink's names), it is a call only with one of these names and
     * without other keys than a call's; none: any. */
    const char *names;
    int num_names;
    const char *arguments_key; /* the only one; NULL: any */
    enum tool_call_object_state state;
    struct json_stream json;                   /* of the key, the name or the skipped value */
    char word[OUTPUT_MAX_TOOL_NAME_BYTES + 1]; /* the key or the name being read, unescaped */
    size_t word_length;
    struct json_unescape unescape; /* of the word */
    char name[OUTPUT_MAX_TOOL_NAME_BYTES];
    size_t name_length; /* 0: not known yet */
    bool has_arguments;
    struct tool_call_arguments arguments;
    struct byte_buffer waiting; /* arguments that the sink has not taken; owned */
};

/* Begins an object in a struct that is zeroed or was used before. needs_arguments: it is not a call
 * without arguments. */
void tool_call_object_begin(struct tool_call_object *object, struct tool_call_sink *sink,
                            bool needs_arguments);
/* Begins a call whose name was read elsewhere: only the arguments follow. */
void tool_call_object_begin_named(struct tool_call_object *object, struct tool_call_sink *sink,
                                  const char *name, size_t length);
/* Ends the text. An object that lacks only its last brace is a call: returns whether it is one. */
bool tool_call_object_end(struct tool_call_object *object);
enum tool_call_step tool_call_object_push(struct tool_call_object *object, char byte);
void tool_call_object_finish(struct tool_call_object *object);

#endif
