/* The bodies of POST /v1/score (vLLM's) and of /v1/rerank and /v2/rerank (vLLM's, Jina's and
 * Cohere's) as native values, every one checked. A rerank is a score of one text, the query, and
 * its documents. */
#ifndef QUIRE_SERVER_API_SCORES_SCORE_BODY_H
#define QUIRE_SERVER_API_SCORES_SCORE_BODY_H

#include "server/api/embeddings/embedding_request.h"
#include "config/json/json_field.h"

/* Absent fields hold vLLM's default, or the server's where the field is of embeddings. */
struct score_body {
    cJSON *json; /* owns every string and the texts below */
    /* Each with one text or more: as many in both, or one in the first (text_1, the query). An
     * element of the second (text_2, documents) may be {"text": ...} where it is a rerank's. */
    struct prompt_list first, second;
    struct embedding_settings settings;
    struct byte_buffer ignored; /* names of unknown fields, comma-separated */

    /* read by the field table */
    const char *model;      /* NULL: not given */
    const char *cache_salt; /* NULL: not given */
    const char *request_id; /* NULL: not given */
    int64_t top_n;          /* of a rerank: so many of the best; 0: all */
    int64_t priority;
    int64_t timeout_ms; /* 0: not given */
    bool add_special_tokens, parse_special, return_documents;
};

/* On failure -1 and *err, nothing to free. */
int score_body_parse(const struct api_context *context, const char *text, size_t length,
                     bool is_rerank, struct score_body *out, struct api_error *err);
void score_body_finish(struct score_body *body);

/* Returns the string of an element of one of the two lists. */
const cJSON *score_body_text(const cJSON *item);

/* Return the tables of known fields; static. */
struct json_table score_body_table(void);
struct json_table score_body_rerank_table(void);

#endif
