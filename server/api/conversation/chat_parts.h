/* The parts of the only choice of a chat whose answer is a list of parts (responses, messages): all
 * parts of its text except for those to be left out. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_PARTS_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_PARTS_H

#include "engine/request/request.h"
#include "server/api/conversation/chat_generation.h"

struct chat_parts {
    struct output_parser *parser;
    char *names; /* memory of the parser's names and of custom_names (chat_generation.h); owned */
    const char *custom_names;
    int num_custom_names;
    bool is_custom; /* of the call that began last */
    struct custom_input input;
    struct byte_buffer converted; /* what the last arguments added to the input */
    bool hides_reasoning, hides_content;
    int32_t max_tool_calls; /* further ones are left out */
    int32_t num_generated, num_reasoning_tokens;
};

/* Takes ownership of the generation's names; the request is still owned by the caller. Returns -1
 * and fills *err when memory is short; chat_parts_finish is called even then. */
int chat_parts_init(struct chat_parts *parts, const struct chat_generation *generation,
                    struct api_error *err);
void chat_parts_finish(struct chat_parts *parts); /* accepts a zeroed struct */

/* Adds an event's text. Returns -1 when memory is short. */
int chat_parts_push(struct chat_parts *parts, const struct token_event *event);
/* Takes the parts that this released, in order, like output_parser_next. */
bool chat_parts_next(struct chat_parts *parts, struct output_part *out);

#endif
