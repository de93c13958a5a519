/* The options that concern the engine, with what its worker became or would become. */
#ifndef QUIRE_SERVER_ENGINE_OPTIONS_H
#define QUIRE_SERVER_ENGINE_OPTIONS_H

#include "config/options.h"
#include "engine/engine.h"
#include "engine/executor/worker_executor.h"

/* The prompts of a call at most. */
#define MAX_PROMPTS 1024
/* The choices of all its prompts. */
int32_t engine_options_call_choices(const struct options *options);

/* Logprobs that a request may ask for of each token. */
int32_t engine_options_max_logprobs(const struct options *options, int32_t vocab_size);

/* Everything but the vocabulary, the wake callback and the stall timeout. */
struct engine_config engine_options_read(const struct options *options, const struct model *model,
                                         const struct worker_info *info,
                                         const struct serving_limits *limits);
struct serving_limits engine_options_limits(const struct options *options,
                                            const struct model *model,
                                            const struct worker_config *worker,
                                            const struct worker_info *info);

#endif
