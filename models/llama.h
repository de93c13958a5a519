/* The one transformer of the LLaMA family, written against the op table. One per rank, used by the
 * rank's thread; those of a model's ranks are called for the same batches, together (backend.h).
 * Memory is taken at start (backend.h): llama_create allocates what the largest step needs, a step
 * allocates nothing. */
#ifndef QUIRE_MODELS_LLAMA_H
#define QUIRE_MODELS_LLAMA_H

#include "config/serving_limits.h"
#include "kernels/backend.h"
#include "models/batch.h"
#include "models/weights/model_shard.h"
#include "models/weights/weights.h"

struct llama;

/* Does not take ownership of its arguments; they outlive the llama. A batch has at most
 * max_num_batched_tokens tokens and max_num_seqs hidden sums, and any number of sample rows: their
 * logits are computed max_logit_rows at a time. ERROR_MEMORY when the workspace does not fit,
 * ERROR_DEVICE when the device failed. */
int llama_create(struct backend *backend, const struct model_config *config,
                 const struct model_shard *shard, const struct weights *weights,
                 const struct serving_limits *limits, struct llama **out, struct error *err);
void llama_destroy(struct llama *llama); /* accepts NULL */
/* Returns the device memory that llama_create takes on a backend of this activation_dtype and
 * head_rows_step; SIZE_MAX when that cannot be. */
size_t llama_workspace_needed(const struct model_config *config, const struct model_shard *shard,
                              enum dtype activation_dtype, int32_t head_rows_step,
                              const struct serving_limits *limits);
size_t llama_workspace_bytes(const struct llama *llama);

/* Records decode steps of up to max_num_seqs sequences (recorded_steps.h), which llama_forward
 * replays from then on for this cache; its memory, which is not touched here, outlives
 * the llama or llama_forget_recorded. Runs each size once, so that the device loads and chooses
 * what it needs. Where the backend does not record, or the model has several ranks, nothing is
 * done. ERROR_MEMORY, ERROR_DEVICE: nothing is recorded then. */
int llama_record(struct llama *llama, struct kv_cache *cache, struct error *err);
/* Every step was waited for. */
void llama_forget_recorded(struct llama *llama);
int32_t llama_num_recorded(const struct llama *llama);

/* A step in two parts, each of which only enqueues. The first writes the new tokens' keys and
 * values into the cache, up to the last hidden states; it reads no late input of the batch
 * (batch.h). With several stages no token is one that the step before sampled (token_rows). */
void llama_forward(struct llama *llama, struct kv_cache *cache, const struct batch *batch);
/* Goes on with the batch that llama_forward was last called for: result->rows of every sample row
 * and result->hidden_sums of every span are complete once the backend was waited for. Only rank 0
 * of the stage with the head writes the result; others may have NULL. */
void llama_sample(struct llama *llama, const struct batch *batch, struct step_result *result);
/* Does both, and waits: 0, or -1 with ERROR_DEVICE, after which nothing works any more. */
int llama_step(struct llama *llama, struct kv_cache *cache, const struct batch *batch,
               struct step_result *result, struct error *err);

#endif
