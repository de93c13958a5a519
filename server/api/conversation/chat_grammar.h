/* Builds the grammar that the answer of a chat must match. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_GRAMMAR_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_GRAMMAR_H

#include "server/api/call/api_context.h"
#include "server/api/conversation/conversation.h"
#include "server/output/output_parser.h"

/* Builds the grammar of tool calls if they are forced, which takes precedence. Otherwise builds the
 * form that the body requests (response_format.h), with what else the model does: it may reason
 * first, and call tools instead if it has some. `model` is what the answer is parsed with. The
 * caller unrefs *out; NULL: any text. On failure returns -1 and fills *err: 400 for an invalid
 * schema or a strict one that cannot be forced, or 503. */
int chat_grammar_build(const struct api_context *context, const struct conversation *conversation,
                       const struct output_parser_config *model, struct grammar **out,
                       struct api_error *err);

#endif
