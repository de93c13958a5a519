/* What scores need to know about a model that classifies: its classifier, and how a query and a
 * document become one prompt. Const once the server runs, shared by all threads. */
#ifndef QUIRE_SERVER_API_SCORES_SCORE_MODEL_H
#define QUIRE_SERVER_API_SCORES_SCORE_MODEL_H

#include "config/base/error.h"
#include "models/chat_template/chat_template.h"
#include "models/config/classifier.h"
#include "server/api/call/api_context.h"
#include "server/api/fields/prompt_field.h"

struct score_model {
    const struct classifier *classifier; /* borrowed */
    const struct tokenizer *tokenizer;   /* borrowed */
    struct chat_template *pair_template; /* owned; NULL: the document follows the query */
    bool takes_instruction;              /* the template shows one */
};

/* Sources of templates; each NULL: none. */
struct score_model_config {
    const char *given_template; /* of --chat-template */
    const char *pair_text;      /* of the model's files: a text with {query} and {document} */
    const char *chat_template;  /* of the model's files */
    bool has_card_format;       /* pairs have the format of Qwen3-Reranker's model card */
};

/* Makes *out for a model that classifies, and NULL if it has no labels. The template of pairs is a
 * Jinja template of messages with the roles "query" and "document", and "system" for an
 * instruction, like vLLM's: the one that is given, that of the model's files if it shows both
 * texts, or the card's. Classifier and tokenizer must outlive it. ERROR_CONFIG if a given template
 * does not show the texts. */
int score_model_create(const struct classifier *classifier, const struct tokenizer *tokenizer,
                       const struct score_model_config *config, struct score_model **out,
                       struct error *err);
void score_model_destroy(struct score_model *model); /* accepts NULL */

/* Encodes a pair. Control tokens in the texts are plain characters if there is a template;
 * otherwise flags (enum tokenizer_flags) decide. On failure returns -1 and fills *err; path names
 * the document. */
int score_model_encode(const struct api_context *context, const char *query, const char *document,
                       const char *instruction, unsigned flags,
                       const struct prompt_truncation *truncation, const char *path,
                       struct prompt_tokens *out, struct api_error *err);

#endif
