/* The draft model of a rank (speculative decoding: Leviathan et al., arXiv 2211.17192): a second
 * llama on the rank's backend, with weights, workspace, KV cache and host block pool of its own.
 * Its pools have the blocks of the rank's, under the same numbers, and hold its keys and values of
 * the same tokens: whatever is moved, is moved in both. Used by the rank's thread.
 *
 * It may be a layer of the served model that predicts further tokens (models/config/mtp.h). Such a
 * layer computes a token from the model's hidden state of the one before it, in whose slot its keys
 * and values are. These states are kept for every token of the KV cache, in pools with the same
 * blocks: so they are there after a prefix match, a swap or a fork, and a sequence may start to
 * draft at any time. The slots of drafts hold the layer's own states until the step that verifies
 * them computes the model's. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_DRAFT_H
#define QUIRE_ENGINE_EXECUTOR_RANK_DRAFT_H

#include "models/batch.h"
#include "models/llama.h"
#include "models/weights/weights.h"

struct executor_config;
struct rank_watch;

struct rank_draft {
    const struct model *model; /* NULL: there is none, and the rest is zeros */
    struct backend *backend;
    int32_t target_vocab_size; /* of the model whose tokens it proposes */
    struct model_shard shard;  /* all of it */
    struct serving_limits limits;
    struct weights *weights;
    struct llama *llama;
    struct kv_cache cache;
    struct buffer host_pool; /* empty: none */
    /* Of an MTP layer: hidden states, of which a latent layout is one row for each token. */
    struct kv_cache states;
    struct buffer states_host_pool;
    int32_t *next_slots;      /* [max_num_seqs] after those of a pass' rows, for their states */
    struct batch_arena arena; /* of a pass */
    struct sample_output *outputs;
    int32_t *token_ids; /* of the batch, with the drafts; unchanged until it was waited for */
};

/* Returns -1 with ERROR_CONFIG if these ranks cannot have the configuration's draft model; 0 if
 * there is none. */
int rank_draft_check(const struct executor_config *config, struct error *err);
/* Makes the configuration of a backend one for the draft model too. */
void rank_draft_widen(const struct model *model, struct backend_config *config);

/* quantization: of the weights. The backend was opened for the model, which outlives the draft, and
 * `served` is the layout of the rank's cache. ERROR_CONFIG if the backend cannot have both; an
 * MTP layer has not been tried on a GPU, and is refused there. */
int rank_draft_init(struct rank_draft *out, const struct model *model, struct backend *backend,
                    const struct kv_layout *served, enum dtype quantization, struct error *err);
/* Takes the rank's limits. Returns the device memory of weights and workspace; SIZE_MAX on
 * overflow. */
size_t rank_draft_plan(struct rank_draft *draft, const struct serving_limits *limits,
                       const struct weights_options *options);
/* Loads what was planned; target: the weights of the model that it drafts for. On failure it must
 * still be closed. Errors of weights_load and llama_create. */
int rank_draft_load(struct rank_draft *draft, struct weights_reader *reader,
                    const struct weights_options *options, const struct weights *target,
                    struct rank_watch *watch, struct error *err);
size_t rank_draft_bytes(const struct rank_draft *draft);
/* An MTP layer has hidden states of its model. */
static inline bool rank_draft_has_states(const struct rank_draft *draft) {
    return draft->model != NULL && draft->model->config.is_mtp;
}
/* Also frees the pools. Accepts a zeroed one, and one that was closed. */
void rank_draft_close(struct rank_draft *draft);

/* Computes the batch's draft requests, and stores the drafts in result->drafts. Returns the batch
 * with these among its tokens; what it points to stays valid until the next call. Waits for the
 * device, which has no other step: a first pass computes the inputs of all requests, and each
 * further one the token drafted last. The blocks of the batch were moved. When the device fails,
 * the next wait of the backend reports it. */
struct batch rank_draft_run(struct rank_draft *draft, const struct batch *batch,
                            struct step_result *result, struct rank_watch *watch);

#endif
