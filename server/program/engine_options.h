/* The options that concern the engine and its executor, checked against the model. */
#ifndef QUIRE_SERVER_PROGRAM_ENGINE_OPTIONS_H
#define QUIRE_SERVER_PROGRAM_ENGINE_OPTIONS_H

#include "config/options.h"
#include "engine/engine.h"
#include "engine/executor/executor.h"
#include "config/base/error.h"
#include "server/api/call/api_context.h"

#include <stdint.h>

/* Maximum prompts of an API call. */
#define MAX_PROMPTS 2048 /* OpenAI's, of embeddings */
/* Returns the maximum number of choices of all prompts of a call. */
int32_t engine_options_call_choices(const struct options *options);

/* Leaves the length of a sequence open if max-model-len does. Fails with ERROR_CONFIG for a
 * max-model-len below 2 or that the model was not trained for, and for an invalid
 * speculative-config. *out points into options. The draft model is added by draft_model_use. */
int engine_options_executor(const struct options *options, const struct model *model,
                            struct executor_config *out, struct error *err);

/* Returns whether the ranks live in a separate process (process_executor.h). */
bool engine_options_have_rank_process(const struct options *options);

/* Creates the drafter of speculative-config, or stores NULL if nothing is drafted. The caller frees
 * it with its ops->destroy, after the engine. */
int engine_options_drafter(const struct options *options, struct drafter **out, struct error *err);

/* Sets everything except the vocabulary, the drafter, the wake callback and the stall timeout.
 * info: as reported by executor_create or executor_plan; the result points to its limits and
 * to the model's configuration. */
struct engine_config engine_options_read(const struct options *options, const struct model *model,
                                         const struct executor_info *info);

/* Reads --kv-role: a role, vLLM's name of one, or an object with that as "kv_role", of which
 * "kv_connector" may be any and "kv_load_failure_policy" is "recompute". NULL: none. Returns -1
 * with ERROR_CONFIG: one line with the option, the field, its value and what is allowed. */
int engine_options_read_kv_role(const char *text, enum kv_role *out, struct error *err);

/* The contents of --speculative-config, in vLLM's format: {"method": "ngram", "draft_model" or
 * "mtp", "model": NAME, "num_speculative_tokens": N, "prompt_lookup_max": M, "prompt_lookup_min":
 * m}. */

#define SPECULATIVE_MODEL_BYTES 1024 /* with its NUL: as long as the option */

struct speculative_config {
    char model[SPECULATIVE_MODEL_BYTES]; /* the draft model; "": none is named */
    bool is_mtp;                         /* a layer of the model itself drafts */
    int32_t num_speculative_tokens;      /* maximum per sequence and step; 0: nothing is drafted */
    int32_t prompt_lookup_max;           /* tokens of an n-gram, see engine/draft/ngram_drafter.h */
    int32_t prompt_lookup_min;
};

/* Reads the option's text; NULL: nothing is drafted. num_speculative_tokens is required, and so is
 * method, except with a model. One of the lookups stands for both; without them both are 5, as in
 * vLLM. Unknown keys are refused. Returns -1 with ERROR_CONFIG: one line with the option, the
 * field, its value and what is allowed. */
int engine_options_read_speculative(const char *text, struct speculative_config *out,
                                    struct error *err);
/* Replaces the option's text by one with these values. The old one is freed. ERROR_MEMORY. */
int engine_options_write_speculative(const struct speculative_config *config, char **text,
                                     struct error *err);

#endif
