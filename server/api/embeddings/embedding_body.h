/* The body of POST /v1/embeddings as native values, all checked. */
#ifndef QUIRE_SERVER_API_EMBEDDINGS_EMBEDDING_BODY_H
#define QUIRE_SERVER_API_EMBEDDINGS_EMBEDDING_BODY_H

#include "server/api/call/api_call.h"
#include "server/api/embeddings/embedding_format.h"
#include "server/api/fields/prompt_field.h"
#include "config/json/json_field.h"

/* Which API's form a body and its answer have. */
enum embedding_form {
    EMBEDDING_OPENAI,
    EMBEDDING_OLLAMA,     /* of /api/embed: the answer has embeddings, a list of lists of numbers */
    EMBEDDING_OLLAMA_ONE, /* of /api/embeddings: a prompt instead of inputs; the answer has one
                             embedding, whose length is not normalised */
};

/* Absent fields hold OpenAI's default, or the server's if the field is ours or vLLM's (pooling,
 * normalize, add_special_tokens, parse_special, priority, cache_salt). */
struct embedding_body {
    cJSON *json; /* owns every string and the inputs below */
    struct prompt_list inputs;
    struct prompt_truncation truncation;
    struct byte_buffer ignored; /* names of unknown fields, comma-separated */
    enum embedding_encoding encoding;
    enum embedding_form form;
    enum pooling pooling;

    /* read by the field table */
    const char *model;      /* NULL: not given */
    const char *cache_salt; /* NULL: not given */
    int64_t dimensions; /* the model's own number, or the first n of them if the model allows it */
    int64_t priority;
    int64_t timeout_ms; /* 0: not given */
    bool normalize, add_special_tokens, parse_special;
};

/* Reads the body, whose tree it takes ownership of. On failure returns -1 and sets *err; nothing to
 * free. */
int embedding_body_read(const struct api_context *context, cJSON *json, enum embedding_form form,
                        struct embedding_body *out, struct api_error *err);
void embedding_body_finish(struct embedding_body *body);

/* Makes the API call of such a body, whose tree it takes ownership of. On failure returns -1 and
 * sets *err. */
int embedding_call_create(const struct api_context *context, cJSON *json, enum embedding_form form,
                          struct api_call **out, struct api_error *err);

/* Returns the table of known fields; static. */
struct json_table embedding_body_table(void);

#endif
