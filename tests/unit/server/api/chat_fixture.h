/* A served model that chats, for tests: fake_tokenizer.h's tokens and a ChatML-like template,
 *
 *   <s>ROLE:CONTENT</s>...<s>assistant:
 *
 * with [TOOLS] before it where there are tools, [NAME=VALUE] for what chat_template_kwargs set
 * (thinking), and <think> at its end with thinking set to true. It refuses a message "refuse me".
 */
#ifndef QUIRE_TESTS_UNIT_SERVER_API_CHAT_FIXTURE_H
#define QUIRE_TESTS_UNIT_SERVER_API_CHAT_FIXTURE_H

#include "server/api/call/api_context.h"

/* max_model_len tokens; the model has hermes tool calls and thinks. Every call makes a new one. */
void chat_fixture_init(struct api_context *out, int32_t max_model_len);
void chat_fixture_finish(struct api_context *context);

#endif
