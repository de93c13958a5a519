/* The options that concern the engine and its executor, checked against the model. */
#ifndef QUIRE_SERVER_ENGINE_OPTIONS_H
#define QUIRE_SERVER_ENGINE_OPTIONS_H

#include "config/options.h"
#include "engine/engine.h"
#include "engine/executor/executor.h"

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

#endif
