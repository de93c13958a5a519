/* What the API's functions need to know about the server. Const, shared by all threads. */
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

struct adapter_actions;
struct chat_model;
struct conversation_slots;
struct grammar_cache;
struct request;
struct response_store;
struct score_model;
struct served_adapters;

/* Which prompts it hands over to other servers, or takes over from them (kv_transfer.h). */
enum kv_role {
    KV_ROLE_NONE = 0,
    KV_ROLE_PREFILL = 1,
    KV_ROLE_DECODE = 2,
    KV_ROLE_BOTH = KV_ROLE_PREFILL | KV_ROLE_DECODE,
};

struct api_context {
    const struct serving_limits *limits;
    const struct tokenizer *tokenizer;
    const struct chat_model *chat;    /* NULL: chats are refused */
    const struct score_model *scores; /* NULL: scores are the similarity of embeddings */
    bool refuses_generation;          /* the model has no head for words, or is only for scores */
    bool has_raw_embeddings;          /* if a request does not say, their length is not made 1 */
    struct grammar_cache *grammars;   /* compiled forms of outputs; NULL: none is kept */
    struct response_store *responses; /* NULL: responses are not kept */
    struct conversation_slots *slots; /* NULL: there is no store for conversations */
    enum kv_role kv_role;             /* with a store that other servers have, too */
    const char *kv_store_name;        /* with a role: the same for all these servers */
    /* Of the request: what stands for the name in braces of the route's path, and the query's
     * `action`. NULL: none. */
    const char *path_argument, *action;
    int32_t tenant; /* of the request's API key (auth.h); -1 if there are no keys */
    /* The model's state in llama.cpp's words (http_models.h); NULL: it is always loaded. Of one
     * that was not loaded yet, only names, the adapters that a key may use, and `created` are
     * known. */
    const char *status;
    char *const *model_names; /* served names, or those that a key may use; the first is reported */
    int num_model_names;
    bool takes_any_model;                          /* any other name also means this model */
    struct served_adapters *adapters;              /* that may be named instead; NULL: none ever */
    const struct adapter_actions *adapter_actions; /* NULL: there is no room for any */
    char *const *allowed_names; /* [num_allowed_names] all that the key may use; NULL: any */
    int num_allowed_names;
    int64_t created;     /* Unix seconds of the server's start, for /v1/models */
    int32_t max_prompts; /* prompts in one API call */
    int32_t max_n;       /* choices of one prompt: n and best_of */
    int32_t max_choices; /* of all prompts of an API call */
    /* Limits the sum over several prompts; a single prompt may be as long as the context. */
    int64_t max_prompt_tokens;
    struct sampling_settings sampling; /* if a request says nothing: neutral, or the model's */
    uint64_t seed;                     /* base of the seeds of requests without one */
    atomic_uint_fast64_t *num_seeds;   /* made from it so far; NULL: each is the first */
    const char *system_fingerprint;
    const struct embedding_sizes *embedding_sizes; /* to which embeddings may be cut; NULL: none */
    enum pooling pooling;                          /* of embeddings, unless the request says */
    bool trusts_chat_template;                     /* a request may bring its own */
    bool rejects_unknown_params;  /* an unknown field is a 400, not only listed in a header */
    bool ignores_schema_keywords; /* that cannot be enforced: listed in a header, not a 400 */
};

/* Checks that a name is served: the model's or an adapter's. If not, returns -1 and fills *err:
 * 404, code model_not_found, param model. */
int api_context_check_model(const struct api_context *context, const char *name,
                            struct api_error *err);
/* Sets the adapter of a request whose model has this name; NULL: it was not given. Errors as above:
 * an adapter may have been unloaded since the check. */
int api_context_set_model(const struct api_context *context, const char *name,
                          struct request *request, struct api_error *err);
/* Returns whether the key may use an adapter of that name. */
bool api_context_allows(const struct api_context *context, const char *name);

/* Writes the name of a model that was not given one: the name of its file without ".gguf" and the
 * "-00001-of-00003" of a split file, or of its folder; "model" if there is none, as for "/". out is
 * NUL-terminated. */
void api_context_model_name(const char *path, char *out, size_t capacity);

#endif
