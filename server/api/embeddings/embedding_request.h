/* The engine's request for the embedding of one text, and the fields that say how it is computed:
 * what embeddings and scores have in common. */
#ifndef QUIRE_SERVER_API_EMBEDDINGS_EMBEDDING_REQUEST_H
#define QUIRE_SERVER_API_EMBEDDINGS_EMBEDDING_REQUEST_H

#include "engine/request/request.h"
#include "server/api/fields/prompt_field.h"

struct embedding_settings {
    enum pooling pooling;
    unsigned flags; /* of texts (enum tokenizer_flags) */
    struct prompt_truncation truncation;
    int64_t priority;
    const char *cache_salt; /* NULL: none */
    const char *model;      /* NULL: none was named */
};

/* Reads the field `pooling`; if it is absent or null, *out does not change. Returns -1 and *err,
 * 400, on failure. */
int embedding_pooling_read(const cJSON *body, enum pooling *out, struct api_error *err);

/* Makes the request of a prompt's tokens, which it takes ownership of. Returns -1 and *err as
 * below. */
int embedding_request_of_tokens(const struct api_context *context,
                                const struct embedding_settings *settings,
                                struct prompt_tokens *tokens, struct request **out,
                                struct api_error *err);

/* Makes the request of one prompt (prompt_field.h), whose path names it in errors. Returns -1 and
 * *err on failure; *out may be set then, and is owned by the caller. */
int embedding_request_create(const struct api_context *context,
                             const struct embedding_settings *settings, const cJSON *item,
                             const char *path, struct request **out, struct api_error *err);

#endif
