/* Reads the fields of a conversation that have the same name in every API. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CONVERSATION_FIELDS_H
#define QUIRE_SERVER_API_CONVERSATION_CONVERSATION_FIELDS_H

#include "server/api/conversation/conversation.h"

/* Reads sampling and the fields of the API's own table, chat_template and the like, and what the
 * table cannot express. Appends the names of fields that are not read to `ignored`, after those
 * that the API's own reader has put there; a 400 if the server refuses them. Returns -1 and fills
 * *err on failure. */
int conversation_fields_read(const struct api_context *context, const cJSON *body,
                             struct json_table own, struct conversation *out,
                             struct api_error *err);

/* Reads chat_template, chat_template_kwargs, add_generation_prompt, which is true unless it is
 * given or the final message is continued, and continue_final_message, which excludes it. Returns
 * -1 and fills *err on failure, also if the server does not trust templates of requests. */
int conversation_fields_read_template(const struct api_context *context, const cJSON *body,
                                      struct conversation *out, struct api_error *err);

/* Refuses fields of a chat that would have a meaning in another API without being part of it:
 * returns -1 and fills *err for the first one that is given. */
int conversation_fields_refuse(const cJSON *body, const char *const *names, size_t num_names,
                               struct api_error *err);
#define CONVERSATION_FIELDS_REFUSE(body, names, err)                                               \
    conversation_fields_refuse(body, names, sizeof(names) / sizeof((names)[0]), err)

/* Checks the tools, once sampling and all tools were read: their schemas must be valid, and the
 * choice must be compatible with sampling. Appends to `ignored` the keywords that forced calls
 * would not be constrained by, if the server ignores these. Returns -1 and fills *err on
 * failure. */
int conversation_fields_check_tools(const struct api_context *context,
                                    struct conversation *conversation, struct api_error *err);

#endif
