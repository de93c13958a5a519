/* The bodies of POST /v1/score and /classify (vLLM's) and of /v1/rerank and /v2/rerank (vLLM's,
 * Jina's and Cohere's) as native values, all checked. A rerank is a score of one text, the query,
 * and its documents. */
#ifndef QUIRE_SERVER_API_SCORES_SCORE_BODY_H
#define QUIRE_SERVER_API_SCORES_SCORE_BODY_H

#include "server/api/embeddings/embedding_request.h"
#include "config/json/json_field.h"

enum score_form { SCORE_OF_PAIRS, SCORE_OF_RANKS, SCORE_OF_CLASSES };

/* Absent fields hold vLLM's default, or the server's if the field is one of embeddings. */
struct score_body {
    cJSON *json; /* owns every string and the texts below */
    /* Each has at least one text: both have the same number, or the first has one (text_1, the
     * query). In a rerank, an element of the second (text_2, documents) may be {"text": ...}. Of
     * /classify only the first is read: its prompts. */
    struct prompt_list first, second;
    struct embedding_settings settings;
    struct byte_buffer ignored; /* names of unknown fields, comma-separated */

    /* read by the field table */
    const char *model;       /* NULL: not given */
    const char *cache_salt;  /* NULL: not given */
    const char *request_id;  /* NULL: not given */
    const char *instruction; /* for the template of pairs; NULL: its own */
    int64_t top_n;           /* of a rerank: return the best n; 0: all */
    int64_t priority;
    int64_t timeout_ms; /* 0: not given */
    bool add_special_tokens, parse_special, return_documents;
    bool use_activation; /* false: a classifier's numbers as they are */
};

/* Parses the body. On failure returns -1 and sets *err; nothing to free. */
int score_body_parse(const struct api_context *context, const char *text, size_t length,
                     enum score_form form, struct score_body *out, struct api_error *err);
void score_body_finish(struct score_body *body);

/* Returns the string of an element of one of the two lists. */
const cJSON *score_body_text(const cJSON *item);

/* Return the tables of known fields; static. */
struct json_table score_body_table(void);
struct json_table score_body_rerank_table(void);
struct json_table score_body_classify_table(void);

#endif
