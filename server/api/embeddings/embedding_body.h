/* The body of POST /v1/embeddings as native values, all checked. */
#ifndef QUIRE_SERVER_API_EMBEDDINGS_EMBEDDING_BODY_H
#define QUIRE_SERVER_API_EMBEDDINGS_EMBEDDING_BODY_H

#include "server/api/embeddings/embedding_format.h"
#include "server/api/fields/prompt_field.h"
#include "config/json/json_field.h"

/* Absent fields hold OpenAI's default, or the server's if the field is ours or vLLM's (pooling,
 * normalize, add_special_tokens, parse_special, priority, cache_salt). */
struct embedding_body {
    cJSON *json; /* owns every string and the inputs below */
    struct prompt_list inputs;
    struct prompt_truncation truncation;
    struct byte_buffer ignored; /* names of unknown fields, comma-separated */
    enum embedding_encoding encoding;
    enum pooling pooling;

    /* read by the field table */
    const char *model;      /* NULL: not given */
    const char *cache_salt; /* NULL: not given */
    int64_t dimensions; /* the model's own number, or the first n of them if the model allows it */
    int64_t priority;
    int64_t timeout_ms; /* 0: not given */
    bool normalize, add_special_tokens, parse_special;
};

/* Parses the body. On failure returns -1 and sets *err; nothing to free. */
int embedding_body_parse(const struct api_context *context, const char *text, size_t length,
                         struct embedding_body *out, struct api_error *err);
void embedding_body_finish(struct embedding_body *body);

/* Returns the table of known fields; static. */
struct json_table embedding_body_table(void);

#endif
