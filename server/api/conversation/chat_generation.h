/* Makes the engine's request and the configuration of its answer's parser from a conversation:
 * shared by chat completions, responses and messages. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_GENERATION_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_GENERATION_H

#include "engine/request/request.h"
#include "server/api/conversation/chat_choice.h"
#include "server/api/conversation/conversation.h"

struct chat_generation {
    struct request *request;          /* the caller's reference */
    struct chat_choice_config config; /* of every choice */
    /* The config's, with its parameter_types; the caller's to free once no choice is left; NULL:
     * none. */
    char *names;
};

/* Renders and encodes the prompt, makes the grammar that the answer has to match, and bounds the
 * logprobs that it may produce. -1 and *err on failure. */
int chat_generation_create(const struct api_context *context,
                           const struct conversation *conversation, struct chat_generation *out,
                           struct api_error *err);

#endif
