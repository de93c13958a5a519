/* The bodies of Ollama's POST /api/chat, /api/generate, /api/embed and /api/embeddings (its
 * api/types.go, 0.12.11), converted to those of this server's own endpoints. What is in `options`
 * is read as if it were a field of the body: num_predict is max_tokens, repeat_penalty is
 * repetition_penalty. */
#ifndef QUIRE_SERVER_API_OLLAMA_OLLAMA_BODY_H
#define QUIRE_SERVER_API_OLLAMA_OLLAMA_BODY_H

#include "server/api/call/api_context.h"
#include "server/api/conversation/conversation.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#define OLLAMA_MAX_OPTIONS 64

struct ollama_body {
    struct conversation conversation; /* owns the body's tree */
    bool is_chat;
    const cJSON *prompt;     /* of a text that no template makes; NULL: the conversation is one */
    const char *suffix;      /* text after the gap that is to be filled; NULL: none */
    const char *done_reason; /* of a request that only loads the model, or unloads it; NULL: it
                                generates */
};

/* Parses a body of /api/chat or /api/generate. On failure returns -1 and sets *err; nothing to
 * free. */
int ollama_body_parse(const struct api_context *context, const char *text, size_t length,
                      bool is_chat, struct ollama_body *out, struct api_error *err);
void ollama_body_finish(struct ollama_body *body);

/* --- Its parts --- */

/* Checks the model that the member `name` names, from which the tag ":latest" is removed unless it
 * is part of a served name. Returns -1 and *err on failure. */
int ollama_body_take_model(const struct api_context *context, cJSON *json, const char *name,
                           struct api_error *err);
/* Checks keep_alive, a number of seconds or a text such as "5m", and fills in whether it is 0.
 * Returns -1 and *err on failure. */
int ollama_body_read_keep_alive(const cJSON *json, bool *out_is_zero, struct api_error *err);
/* Names a field of an error as the body does, which has it in `options`. Returns -1. */
int ollama_body_name_option(const cJSON *json, struct api_error *err);
/* Replaces a member; takes ownership of the item. Returns -1 and *err if the item is NULL or memory
 * is short. */
int ollama_body_put(cJSON *json, const char *name, cJSON *item, struct api_error *err);

#endif
