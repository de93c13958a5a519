/* An executor without a model. It keeps a shadow of the KV cache and of the host pool: what a slot
 * holds is its token, its position and the hash of the whole history up to it, as keys and values
 * of a deep model depend on all tokens before. It makes the batch's block moves, writes the batch's
 * tokens where slot_mapping says, and reads each sequence's history back through its block table,
 * as attention would: a wrong slot, a stale or shared block, a move that was left out or made in
 * the wrong order, or any input lost on the way shows either as a violation here or as a wrong
 * token. */
#ifndef QUIRE_TESTS_SIM_FAKE_EXECUTOR_H
#define QUIRE_TESTS_SIM_FAKE_EXECUTOR_H

#include "engine/executor/executor.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/random.h"

#include <stdbool.h>
#include <stdint.h>

struct shadow_slot {
    int32_t token;
    int32_t position; /* -1: never written */
    uint64_t history;
    uint64_t scope; /* of who wrote it, see scope_of */
    uint64_t call;  /* of the last write */
    int32_t group;  /* of layers */
};

/* Who wrote to a block in the last call that did. */
struct block_writer {
    uint64_t call;
    int32_t seq; /* of that call's batch */
};

/* What a slot holds of an adapter (fake_lora.h). */
struct shadow_adapter {
    uint64_t number;  /* 0: nothing was written */
    int32_t num_rows; /* of its matrices, in order */
};

/* When a step runs. In any case after those before it. */
enum fake_timing {
    FAKE_LATE,  /* when it is waited for */
    FAKE_EARLY, /* when it is submitted, or supplied if it has late inputs */
    FAKE_MIXED, /* the one or the other, at random */
};

struct fake_step {
    const struct batch *batch;
    struct step_result *result;
    uint64_t fingerprint; /* of what may not change any more */
    bool is_early;
    bool is_supplied;
    bool has_run;
    int status; /* of the run */
    struct error error;
};

struct fake_executor {
    struct executor base;
    struct fake_step submitted[EXECUTOR_MAX_STEPS];
    int32_t num_submitted;
    const struct batch *running;
    int32_t *sampled; /* [num_sampled] by row of the step that ran last; -1: the row only scores */
    int32_t num_sampled;
    int32_t block_size;
    int32_t num_blocks;
    int32_t num_host_blocks;
    int32_t max_num_batched_tokens;
    struct shadow_slot *slots;                  /* [num_blocks * block_size] */
    struct shadow_slot *host;                   /* [num_host_blocks * block_size] */
    struct shadow_slot *drafted, *drafted_host; /* of the draft model; NULL: none */
    bool has_mtp;                               /* which is a layer of the model */
    int32_t *token_ids;                         /* of a batch whose drafts are filled in */
    struct block_writer *writers;               /* [num_blocks] */
    int32_t *last_from; /* scratch, [larger pool]: last list with the block as a source */
    int32_t *last_to;   /* and as a destination */
    int32_t num_lists;  /* lists of moves made so far */
    struct shadow_adapter adapters[LORA_MAX_SLOTS];
    uint64_t num_calls;
    bool is_lost;
    uint64_t num_losses, num_losses_ahead; /* of ranks; with another step in flight behind */
    uint64_t num_copied, num_swapped_out, num_swapped_in; /* blocks, since the start */
    uint64_t num_token_rows;                              /* tokens taken from a step before */
    uint64_t num_written, num_written_idle; /* pieces of adapters; in steps without tokens */
    uint64_t num_adapted, num_mixed;        /* sequences with an adapter; batches with several */
    uint64_t num_supplied;                  /* steps with late inputs */
    uint64_t num_model_drafts, num_missed;  /* proposed; tokens computed before */
    int32_t next_mask;                      /* of the running call */

    /* Set by the owner after fake_executor_init. */
    enum fake_timing timing;
    struct random random;    /* for FAKE_MIXED */
    int32_t max_num_seqs;    /* 0: not checked */
    int32_t window;          /* >= 2: a token attends to so many, itself included; 0: to all */
    int32_t num_full_groups; /* of layers that attend to all; the others have the window */
    uint64_t fail_at_call;   /* this call and all after it fail; 0: never */
    /* Whether the ranks are lost in this call, or, for NULL, while no step is submitted: what they
     * held is gone with the restart. NULL: never. */
    bool (*loses_ranks)(void *context, const struct batch *batch);
    int32_t delay_us; /* of each call, so that threads meet */
    /* Whose prefixes the sequence of the running batch may share: its slots must be of the same
     * scope. NULL: all are of one. */
    uint64_t (*scope_of)(void *context, const struct batch *batch, int32_t seq);
    /* The number of the adapter that the sequence must be computed with; 0: none. NULL: any. */
    uint64_t (*adapter_of)(void *context, const struct batch *batch, int32_t seq);
    void *context;

    char violation[256]; /* the first thing wrong with a batch; empty: none */
};

void fake_executor_init(struct fake_executor *fake, int32_t num_blocks, int32_t block_size,
                        int32_t max_num_batched_tokens);
/* Blocks to swap to; none before. At most once. */
void fake_executor_add_host(struct fake_executor *fake, int32_t num_host_blocks);
/* A draft model, which is called after fake_executor_add_host. */
void fake_executor_add_draft_model(struct fake_executor *fake, bool has_mtp);
/* As when it sleeps: the slots hold nothing. */
void fake_executor_drop_adapters(struct fake_executor *fake);
void fake_executor_finish(struct fake_executor *fake);

#endif
