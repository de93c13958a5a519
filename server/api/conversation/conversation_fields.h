/* The fields that a conversation has under the same name in every API. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CONVERSATION_FIELDS_H
#define QUIRE_SERVER_API_CONVERSATION_CONVERSATION_FIELDS_H

#include "server/api/conversation/conversation.h"

/* Reads sampling and the fields of the API's own table, chat_template and its like, and what the
 * table cannot say. Appends the names of fields that nobody reads to `ignored`, after those that
 * the API's own reader has put there; a 400 where the server refuses them. -1 and *err. */
int conversation_fields_read(const struct api_context *context, const cJSON *body,
                             struct json_table own, struct conversation *out,
                             struct api_error *err);

/* Reads chat_template, chat_template_kwargs, add_generation_prompt, which is true unless it is
 * given or the final message is continued, and continue_final_message, which excludes it. -1 and
 * *err: also where the server trusts no request's template. */
int conversation_fields_read_template(const struct api_context *context, const cJSON *body,
                                      struct conversation *out, struct api_error *err);

/* Refuses fields of a chat that would mean something in another API without being part of it: -1
 * and *err for the first that is given. */
int conversation_fields_refuse(const cJSON *body, const char *const *names, size_t num_names,
                               struct api_error *err);
#define CONVERSATION_FIELDS_REFUSE(body, names, err)                                               \
    conversation_fields_refuse(body, names, sizeof(names) / sizeof((names)[0]), err)

/* Checks the tools, once sampling and all tools were read: their schemas are ones, and the choice
 * goes with sampling. Appends the keywords that forced calls would not be held to to `ignored`,
 * where the server ignores such. -1 and *err. */
int conversation_fields_check_tools(const struct api_context *context,
                                    struct conversation *conversation, struct api_error *err);

#endif
