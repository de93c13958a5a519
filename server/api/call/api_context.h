/* The server as the API's functions need to know it: const, shared by all threads. */
#ifndef QUIRE_SERVER_API_CALL_API_CONTEXT_H
#define QUIRE_SERVER_API_CALL_API_CONTEXT_H

#include "config/embedding_sizes.h"
#include "config/serving_limits.h"
#include "engine/request/sampling_params.h"
#include "models/tokenizer/tokenizer.h"
#include "config/json/api_error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct chat_model;
struct grammar_cache;
struct response_store;

struct api_context {
    const struct serving_limits *limits;
    const struct tokenizer *tokenizer;
    const struct chat_model *chat;    /* NULL: chats are refused */
    struct grammar_cache *grammars;   /* forms of outputs that were compiled; NULL: none is kept */
    struct response_store *responses; /* NULL: responses are not kept */
    int32_t tenant;           /* of the key whose request it is (auth.h); -1 where there are none */
    char *const *model_names; /* served names, or those of them that a key may use; the first
                                      one is reported */
    int num_model_names;
    bool takes_any_model; /* any other name means this model too */
    int64_t created;      /* Unix seconds of the server's start, for /v1/models */
    int32_t max_prompts;  /* prompts in one API call */
    int32_t max_n;        /* choices of one prompt: n and best_of */
    int32_t max_choices;  /* of all prompts of an API call */
    /* Limits the sum over several prompts; a single one may be as long as the context. */
    int64_t max_prompt_tokens;
    struct sampling_settings sampling; /* where a request says nothing: neutral, or the model's */
    uint64_t seed;                     /* base of the seeds of requests that bring none */
    atomic_uint_fast64_t *num_seeds;   /* made of it so far; NULL: each is the first */
    const char *system_fingerprint;
    const struct embedding_sizes *embedding_sizes; /* to which they may be cut; NULL: none */
    enum pooling pooling;                          /* of embeddings whose request does not say */
    bool trusts_chat_template;                     /* of a request: it may bring one */
    bool rejects_unknown_params;  /* a field that is not known is a 400, not a header */
    bool ignores_schema_keywords; /* that no output can be held to: a header, not a 400 */
};

/* Checks that a name is served: -1 and *err when not, 404, code model_not_found, param model. */
int api_context_check_model(const struct api_context *context, const char *name,
                            struct api_error *err);

/* Writes the name of a model that was given none: its file's without ".gguf" and the
 * "-00001-of-00003" of a split one, or its folder's; "model" where there is none, as for "/". out
 * is NUL-terminated. */
void api_context_model_name(const char *path, char *out, size_t capacity);

#endif
