/* Makes the engine's request and the configuration of its answer's parser from a conversation:
 * shared by chat completions, responses and messages. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_GENERATION_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_GENERATION_H

#include "engine/request/request.h"
#include "server/api/conversation/chat_choice.h"
#include "server/api/conversation/conversation.h"

struct chat_generation {
    struct request *request;          /* a reference, owned by the caller */
    struct chat_choice_config config; /* of every choice */
    /* The memory of the config's names and parameter_types. The caller frees it once no choice is
     * left; NULL: none. */
    char *names;
};

/* Renders and encodes the prompt, makes the grammar that the answer must match, and bounds the
 * logprobs that it may produce. Returns -1 and fills *err on failure. */
int chat_generation_create(const struct api_context *context,
                           const struct conversation *conversation, struct chat_generation *out,
                           struct api_error *err);

#endif
