/* Makes the engine's request and the configuration of its answer's parser from a conversation:
 * shared by chat completions, responses and messages. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_GENERATION_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_GENERATION_H

#include "server/output/output_parser.h"
#include "server/api/call/api_context.h"
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

/* Does the same for a prompt that is given as tokens, without a template: all of the answer is
 * content. */
int chat_generation_create_plain(const struct api_context *context,
                                 const struct conversation *conversation,
                                 const struct prompt_tokens *tokens, struct chat_generation *out,
                                 struct api_error *err);

/* Builds the grammar of tool calls if they are forced, which takes precedence. Otherwise builds the
 * form that the body requests (response_format.h), with what else the model does: it may reason
 * first, and call tools instead if it has some. `model` is what the answer is parsed with. The
 * caller unrefs *out; NULL: any text. On failure returns -1 and fills *err: 400 for an invalid
 * schema or a strict one that cannot be forced, or 503. */
int chat_grammar_build(const struct api_context *context, const struct conversation *conversation,
                       const struct output_parser_config *model, struct grammar **out,
                       struct api_error *err);

#endif
