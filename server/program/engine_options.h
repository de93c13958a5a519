/* The options that concern the engine and its executor, checked against the model. */
#ifndef QUIRE_SERVER_ENGINE_OPTIONS_H
#define QUIRE_SERVER_ENGINE_OPTIONS_H

#include "config/options.h"
#include "engine/engine.h"
#include "engine/executor/executor.h"
#include "config/base/error.h"

#include <stdint.h>

/* Prompts of an API call at most. */
#define MAX_PROMPTS 2048 /* OpenAI's, of embeddings */
/* Choices of all its prompts at most. */
int32_t engine_options_call_choices(const struct options *options);

/* Leaves the length of a sequence open where max-model-len does. ERROR_CONFIG for a max-model-len
 * that the model was not trained for, or below 2, and for a speculative-config that is not one.
 * *out points into options. */
int engine_options_executor(const struct options *options, const struct model *model,
                            struct executor_config *out, struct error *err);

/* Returns whether the ranks live in a process of their own (process_executor.h). */
bool engine_options_have_rank_process(const struct options *options);

/* Creates the drafter of speculative-config, or stores NULL where nothing is drafted. The caller
 * ends it by its ops->destroy, after the engine. */
int engine_options_drafter(const struct options *options, struct drafter **out, struct error *err);

/* Everything but the vocabulary, the drafter, the wake callback and the stall timeout. info: what
 * executor_create or executor_plan reported; the result points to its limits. */
struct engine_config engine_options_read(const struct options *options,
                                         const struct executor_info *info);

/* What --speculative-config says, in vLLM's shape: {"method": "ngram", "num_speculative_tokens": N,
 * "prompt_lookup_max": M, "prompt_lookup_min": m}. */

struct speculative_config {
    int32_t num_speculative_tokens; /* of a sequence and step at most; 0: nothing is drafted */
    int32_t prompt_lookup_max;      /* tokens of an n-gram, see engine/draft/ngram_drafter.h */
    int32_t prompt_lookup_min;
};

/* Reads the option's text; NULL: nothing is drafted. method and num_speculative_tokens have to be
 * given; of the lookups one stands for both, and without them both are 5, as in vLLM. Keys that are
 * not known are refused. -1 with ERROR_CONFIG: one line with the option, the field, its value and
 * what is allowed. */
int engine_options_read_speculative(const char *text, struct speculative_config *out,
                                    struct error *err);

#endif
