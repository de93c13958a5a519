/* The one transformer of the LLaMA family, written against the op table. One per rank, used by the
 * rank's thread; all ranks of a model are called for the same batches, together (backend.h). Memory
 * is allocated at start (backend.h): llama_create allocates what the largest step needs, and a step
 * allocates nothing. */
#ifndef QUIRE_MODELS_LLAMA_H
#define QUIRE_MODELS_LLAMA_H

#include "config/serving_limits.h"
#include "kernels/backend.h"
#include "models/batch.h"
#include "models/lora/lora_slots.h"
#include "models/weights/model_shard.h"
#include "models/weights/weights.h"

struct llama;

/* The arguments stay owned by the caller and outlive the llama; without `lora` (NULL) no sequence
 * has an adapter. A batch has at most
 * max_num_batched_tokens tokens and max_num_seqs hidden sums, and any number of sample rows: their
 * logits are computed max_logit_rows at a time. ERROR_MEMORY when the workspace does not fit,
 * ERROR_DEVICE when the device failed. */
int llama_create(struct backend *backend, const struct model_config *config,
                 const struct model_shard *shard, const struct weights *weights,
                 const struct lora_slots *lora, const struct serving_limits *limits,
                 struct llama **out, struct error *err);
void llama_destroy(struct llama *llama); /* accepts NULL */
/* Returns the device memory that llama_create allocates, with room for adapters of this shape
 * (NULL: none), on a backend with this activation_dtype and head_rows_step; SIZE_MAX on overflow.
 */
size_t llama_workspace_needed(const struct model_config *config, const struct model_shard *shard,
                              const struct lora_shape *lora, enum dtype activation_dtype,
                              int32_t head_rows_step, const struct serving_limits *limits);
size_t llama_workspace_bytes(const struct llama *llama);

/* Records decode steps of up to max_num_seqs sequences (recorded_steps.h), which llama_forward
 * replays from then on for this cache. The cache's memory is not touched here, and outlives the
 * llama or llama_forget_recorded. Runs each size once, so that the device loads kernels and chooses
 * algorithms. Does nothing if the backend has no recordings or the model has several ranks. With
 * ERROR_MEMORY or ERROR_DEVICE, nothing is recorded. */
int llama_record(struct llama *llama, struct kv_cache *cache, struct error *err);
/* All steps must have been waited for. */
void llama_forget_recorded(struct llama *llama);
int32_t llama_num_recorded(const struct llama *llama);

/* A step has two parts, each of which only enqueues work. The first writes the new tokens' keys and
 * values into the cache and computes the last hidden states; it reads no late input of the batch
 * (batch.h). With several stages, no token may be one that the previous step sampled
 * (token_rows). */
void llama_forward(struct llama *llama, struct kv_cache *cache, const struct batch *batch);
/* Steps of a llama then also keep the normed hidden states of their tokens in `states`: a row of
 * hidden_size activations for each slot of the KV cache. One of an MTP layer (config/mtp.h) reads
 * those of its tokens' slots there, and must have some. NULL: none. Its memory may change between
 * steps; it outlives the llama. */
void llama_set_states(struct llama *llama, const struct buffer *states);
/* After llama_forward: keeps those of `count` rows of the step in other slots. Both lists stay
 * valid until the step was waited for. */
void llama_keep_states(struct llama *llama, const int32_t *rows, const int32_t *slots,
                       int32_t count);
/* Continues with the batch of the last llama_forward: result->rows of every sample row and
 * result->hidden_sums of every span are complete once the backend was waited for. Only rank 0 of
 * the stage with the head writes the result; others may have NULL. */
void llama_sample(struct llama *llama, const struct batch *batch, struct step_result *result);
/* Does both, and waits. Returns 0, or -1 with ERROR_DEVICE, after which the llama can no longer be
 * used. */
int llama_step(struct llama *llama, struct kv_cache *cache, const struct batch *batch,
               struct step_result *result, struct error *err);

#endif
