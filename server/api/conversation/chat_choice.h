/* The output of one choice of a chat: its text parsed into reasoning, content and tool calls, and
 * the logprobs and ids of its tokens. Everything is kept until chat_choice_clear, which a whole
 * answer never calls, and a stream calls after each update. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_CHOICE_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_CHOICE_H

#include "config/base/byte_buffer.h"
#include "engine/request/token_stream.h"
#include "config/json/api_error.h"
#include "server/output/custom_input.h"
#include "server/output/output_parser.h"

#include <stdbool.h>
#include <stdint.h>

#define CHAT_TOOL_CALL_ID_BYTES 32

struct chat_tool_call {
    char id[CHAT_TOOL_CALL_ID_BYTES]; /* "call_" and hexadecimal digits */
    struct byte_buffer name;
    struct byte_buffer arguments; /* or a custom tool's input */
    bool is_custom;
    struct custom_input input;
    bool is_begun;      /* id and name were already sent */
    bool has_arguments; /* some have been added */
};

struct chat_choice {
    struct output_parser_config parser_config;
    const char *custom_names; /* borrowed from the config */
    int num_custom_names;
    struct output_parser *parser; /* owned; made at the first event, unless everything is content */
    bool hides_reasoning, hides_content;
    int32_t max_tool_calls; /* further ones are left out */
    struct byte_buffer content, reasoning;
    struct chat_tool_call *tool_calls; /* [num_tool_calls], owned */
    int32_t num_tool_calls;
    size_t tool_calls_capacity;
    struct byte_buffer logprobs, token_ids; /* entries of JSON arrays */
    int32_t num_reasoning_tokens;
    bool has_role;        /* a stream's first chunk was written */
    bool has_broken_call; /* output_parser_is_broken */
};

struct chat_choice_config {
    struct output_parser_config parser;
    bool hides_reasoning, allows_parallel;
    const char *custom_names; /* of custom tools, like output_parser_config's names; borrowed */
    int num_custom_names;
    bool must_call_tools; /* forced: content is a tool call that was cut off, and is left out */
};

/* Fills a zeroed choice, which allocates memory only at its first event. */
void chat_choice_init(struct chat_choice *choice, const struct chat_choice_config *config);
void chat_choice_finish(struct chat_choice *choice);

/* Returns how an event ends the text of its choice. */
enum output_end chat_choice_end_of(const struct token_event *event);
/* Adds an event's text. Returns -1 when memory is short. The caller adds logprobs and token ids. */
int chat_choice_add(struct chat_choice *choice, const struct token_event *event);
/* Returns whether anything was added since the last chat_choice_clear. */
bool chat_choice_has_output(const struct chat_choice *choice);
void chat_choice_clear(struct chat_choice *choice);
/* Returns the size of the memory that grows with the output. */
size_t chat_choice_bytes(const struct chat_choice *choice);

#endif
