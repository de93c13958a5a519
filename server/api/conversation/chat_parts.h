/* The parts of the one choice of a chat whose answer is a list of them (responses, messages): those
 * of its text that are not to be left out. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_PARTS_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_PARTS_H

#include "engine/request/request.h"
#include "server/api/conversation/chat_generation.h"

struct chat_parts {
    struct output_parser *parser;
    char *names; /* the parser's and these (chat_generation.h) */
    const char *custom_names;
    int num_custom_names;
    bool is_custom; /* the call that was begun last */
    struct custom_input input;
    struct byte_buffer converted; /* what the last arguments added to it */
    bool hides_reasoning, hides_content;
    int32_t max_tool_calls; /* further ones are left out */
    int32_t num_generated, num_reasoning_tokens;
};

/* Takes over the generation's names; the request stays the caller's. -1 and *err when memory is
 * short; chat_parts_finish is called all the same. */
int chat_parts_init(struct chat_parts *parts, const struct chat_generation *generation,
                    struct api_error *err);
void chat_parts_finish(struct chat_parts *parts); /* also of a zeroed struct */

/* Adds an event's text; -1 when memory is short. */
int chat_parts_push(struct chat_parts *parts, const struct token_event *event);
/* Takes the parts that this released, in order, as output_parser_next does. */
bool chat_parts_next(struct chat_parts *parts, struct output_part *out);

#endif
