/* The executor runs steps: it takes batches and returns sampled tokens. The engine thread is its
 * only caller. Steps run one after the other in the order in which they are submitted; while one
 * runs, the next can be submitted, so that the device goes from one to the other without waiting
 * for the engine.
 *
 * An interface, so that tests drive the whole engine with scripted tokens and no model. The real
 * one, executor_create, computes a model on one device, in one rank or, on a CPU, several that each
 * have a share of it: backend, weights, workspace and KV cache (engine/executor/rank.h). Each has a
 * thread, here or in a process of its own (engine/executor/remote_ranks.h); the steps of one GPU
 * alone are enqueued by the engine's. Ranks share each layer, or the layers are shared out among
 * stages of so many ranks: stages compute different steps at a time, and no token of a step is one
 * that a step before it, which was not waited for, samples. */
#ifndef QUIRE_ENGINE_EXECUTOR_EXECUTOR_H
#define QUIRE_ENGINE_EXECUTOR_EXECUTOR_H

#include "config/base/check.h"
#include "config/base/error.h"
#include "config/serving_limits.h"
#include "engine/stats/engine_stats.h"
#include "kernels/tuning.h"
#include "models/batch.h"
#include "models/files/content_hash.h"
#include "models/config/model.h"
#include "models/weights/weights_reader.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct executor;

#define EXECUTOR_MAX_STEPS 2 /* submitted and not waited for */

struct executor_ops {
    /* Hands over one step. The batch and the memory of the result stay the executor's until it was
     * waited for, but for the late inputs of the batch, if it has any, until supply. */
    void (*submit)(struct executor *executor, const struct batch *batch,
                   struct step_result *result);
    /* Reports that the late inputs of the step submitted last are complete. Once for a batch that
     * has some, before it is waited for; never for others. */
    void (*supply)(struct executor *executor);
    /* Waits for the oldest step that was submitted. 0, or -1 with ERROR_DEVICE: the executor is
     * then unusable, and so ends every later step. Of one that hangs (executor_has_hung) the
     * memory of the steps stays the executor's for good. -1 with ERROR_RESTART: the ranks are lost,
     * with all that the KV blocks of both pools held. So end the other steps that were submitted,
     * whose late inputs are not supplied any more; none is submitted before a restart. */
    int (*wait)(struct executor *executor, struct error *err);
    /* Every step was waited for, and it does not hang. */
    void (*destroy)(struct executor *executor);
    /* Stores the memory of one more step, for batches and results of this capacity
     * (step_memory_bytes), the executor's; NULL: any memory will do. Of every step that is
     * submitted, before the first of them, EXECUTOR_MAX_STEPS at most and all of the same capacity.
     * -1 when memory is short. */
    int (*step_memory)(struct executor *executor, const struct batch_capacity *capacity,
                       void **out);
    /* While no step is submitted: 0, or what wait would return. Every second, if it can_lose_ranks.
     */
    int (*check)(struct executor *executor, struct error *err);
    /* After ERROR_RESTART, while no step is submitted. Starts the ranks again, with the same
     * weights and limits, which takes as long as loading them: 0, -1 with ERROR_RESTART, after
     * which it may be tried again, or -1 with another error: the executor is unusable. */
    int (*restart)(struct executor *executor, struct error *err);
    /* Of one that can_sleep. Gives memory back until it is woken, while no step is submitted and
     * the ranks are not lost: that of both pools, with what the KV blocks held, and with
     * discards_weights all that the ranks have, to be read from the model's files again. One that
     * sleeps with what its ranks have can give that back later. It may hang. */
    void (*sleep)(struct executor *executor, bool discards_weights);
    /* Of one that sleeps: takes the memory again, in the same sizes. 0, or -1: it sleeps on, unless
     * it hangs, and may be woken again. */
    int (*wake)(struct executor *executor, struct error *err);
    /* Writes what each rank has done, and returns their number, BACKEND_MAX_RANKS at most; 0: not
     * known, as of a GPU alone. Of ranks in other processes it is a second old while steps run, and
     * where these were started again it begins anew. Any thread. */
    int32_t (*rank_stats)(struct executor *executor, struct rank_stats *out);
};

/* No entry of the table is NULL, and none is swapped for another while the executor lives. */
struct executor {
    const struct executor_ops *ops;
    bool can_lose_ranks; /* they are other processes */
    bool can_sleep;
    atomic_bool has_hung;         /* see executor_has_hung */
    atomic_bool stops_restarting; /* see executor_stop_restarting */
};

/* Returns whether a device has not come back within the timeout. What it was given, executor and
 * model included, can then never be freed, and exit(3) may wait for it: the process is to leave by
 * _exit(2). A GPU that keeps the engine's thread in a call that enqueues ends the process itself,
 * with status 70. Any thread. */
static inline bool executor_has_hung(struct executor *executor) {
    return atomic_load(&executor->has_hung);
}

/* A restart that runs ends soon, and each later one at once, with ERROR_RESTART. Any thread. */
static inline void executor_stop_restarting(struct executor *executor) {
    atomic_store(&executor->stops_restarting, true);
}

/* --- Entries of executors that do less --- */

static inline int executor_takes_any_memory(struct executor *executor,
                                            const struct batch_capacity *capacity, void **out) {
    *out = NULL;
    return 0;
}

static inline int executor_keeps_ranks(struct executor *executor, struct error *err) {
    return 0;
}

static inline int32_t executor_has_no_stats(struct executor *executor, struct rank_stats *out) {
    return 0;
}

/* What is never called: a restart without ERROR_RESTART, sleep and wake without can_sleep. */
static inline int executor_cannot_start_again(struct executor *executor, struct error *err) {
    CHECK(false);
    return -1;
}

static inline void executor_cannot_sleep(struct executor *executor, bool discards_weights) {
    CHECK(false);
}

/* All of them but submit, supply, wait and destroy, for a table of one that only runs steps. */
#define EXECUTOR_RUNS_STEPS                                                                        \
    .step_memory = executor_takes_any_memory, .check = executor_keeps_ranks,                       \
    .restart = executor_cannot_start_again, .sleep = executor_cannot_sleep,                        \
    .wake = executor_cannot_start_again, .rank_stats = executor_has_no_stats

#define EXECUTOR_SWAP_AUTO SIZE_MAX

/* Configures the real executor. */
struct executor_config {
    const char *device;   /* as backend_open names it; "auto": cuda if it can be used, else cpu */
    enum dtype dtype;     /* of a GPU's activations; DTYPE_AUTO: the model's. On the CPU BF16 lets
                              products with BF16 weights round them (backend.h) */
    enum kv_type kv_type; /* KV_AUTO: the model's, on a GPU that of its activations */
    enum dtype quantization;       /* Q8_0: float weights become that on a CPU; DTYPE_NONE: none */
    bool batch_invariant;          /* of a GPU; a CPU always is */
    bool enforce_eager;            /* a GPU's decode steps are not recorded */
    double gpu_memory_utilization; /* share of a GPU's memory to be used in all */
    int32_t num_threads;           /* of a CPU, all ranks together; 0: one per available core */
    const char *cpu_isa;           /* as backend_config.isa; outlives the executor */
    int32_t num_ranks;             /* of a CPU, that share each layer; 0: one */
    int32_t num_stages;            /* of a CPU, that share out the layers, each of num_ranks ranks,
                                      at most BACKEND_MAX_RANKS in all; 0: one */
    /* The ranks are that many processes, this one is rank transport->rank, of which 0 has the
     * engine; outlives the executor. NULL: they are threads. */
    struct transport *transport;
    enum weights_load_mode load_mode; /* with a transport */
    const char *build;                /* with a transport: of this program (config/build_hash.h) */
    int32_t device_timeout_s; /* for what a GPU is given at once, a step above all, before it
                                      counts as hanging; 0: it may take for ever */
    size_t kv_memory_bytes;   /* of the KV block pool; 0: chosen from the memory at hand */
    size_t swap_bytes; /* of the host block pool, whole blocks of it; 0: none; EXECUTOR_SWAP_AUTO:
                          by device */
    int32_t most_model_len; /* of a length that is chosen; 0: it was requested */
    /* max_num_seqs and max_num_batched_tokens may be 0: by device. So may max_model_len: as many
     * tokens as the KV cache has room for, up to most_model_len. max_logit_rows and the numbers of
     * blocks are not read: they are always chosen. */
    struct serving_limits limits;
    struct weights_progress progress; /* of loading; zeroed: nobody asks */
};

/* Memory by part, for the table printed at start. On a CPU the ranks have the system's memory in
 * common: what is requested, or chosen, is for all of them together. */
struct executor_memory {
    size_t weight_bytes;
    size_t workspace_bytes; /* of the forward pass and of the backend's operations */
    size_t kv_bytes;        /* of the KV block pool */
    size_t swap_bytes;      /* of the host block pool */
    size_t recorded_bytes;  /* of a GPU: recorded decode steps */
    size_t overhead_bytes;  /* of a GPU: driver, libraries and other processes */
    size_t free_bytes;      /* of a GPU */
};

#define EXECUTOR_PLACE_BYTES 80

/* Describes the executor as it was made. */
struct executor_info {
    struct serving_limits limits; /* complete */
    int32_t most_model_len;       /* of the configuration */
    char device[32];              /* "cpu", "cuda" */
    char description[128];        /* for people: instruction set, threads; GPU */
    char why_cpu[512];            /* why "auto" is not cuda; empty otherwise */
    char numerics[192];           /* of the backend */
    bool has_dedicated_memory;    /* the device's memory is its own: a GPU */
    bool batch_invariant;
    enum dtype activation_dtype;
    enum kv_type kv_type;
    /* Of the model's settings and bytes (weights_digest.h): equal for models that are the same in
     * everything that could change an answer. Zeros of what is only planned, and on rank 1 and
     * higher of processes. */
    uint8_t model_digest[CONTENT_HASH_BYTES];
    int64_t swap_block_ns; /* to move one block to the host block pool, measured at start; 0: there
                              is none, or it is only planned */
    bool records_steps;    /* a GPU replays decode steps */
    int32_t num_recorded;  /* of so many sizes; 0: they are only planned */
    int64_t recording_ns;  /* that took at start */
    struct tuning_report tuning;   /* of a GPU's matrix products; zeros of what is only planned */
    struct executor_memory memory; /* of all ranks */
    size_t at_hand_bytes; /* of a CPU: of the system's memory, with everything but the pools
                                      in place, or planned */
    int32_t num_ranks;    /* of all stages */
    int32_t num_stages;
    struct executor_memory rank_memory[BACKEND_MAX_RANKS];     /* of each */
    char rank_places[BACKEND_MAX_RANKS][EXECUTOR_PLACE_BYTES]; /* of each of several, for people */
    pid_t rank_process; /* where they live, at first (process_executor.h); 0: in this one */
};

/* Returns once the weights are loaded and the memory of both pools is allocated; what does not fit
 * by the model's headers is refused before. The model outlives
 * the executor; *info is filled in only on success. ERROR_CONFIG: the device is not there,
 * or an option does not suit it; ERROR_MEMORY: which part does not fit, how much is missing and
 * what helps; ERROR_DEVICE: it failed. On failure *out is NULL, or an executor that hangs. */
int executor_create(const struct model *model, const struct executor_config *config,
                    struct executor_info *info, struct executor **out, struct error *err);

/* Leaves nothing in the configuration open that was chosen for ranks that have started, so that
 * others choose the same, though the memory at hand has changed. config->device points into *info.
 */
void executor_info_fix(const struct executor_info *info, struct executor_config *config);
/* Checks that ranks which were started again are as the first were, and logs what differs in bits
 * alone. ERROR_MODEL: the model's files are others; ERROR_DEVICE: other sizes. */
int executor_info_compare(const struct executor_info *first, const struct executor_info *now,
                          struct error *err);

/* Fills in what executor_create would, from the model's headers alone: the device is opened, but
 * nothing is loaded. A GPU's overhead is what is in use now; its libraries take more. Errors as
 * there. */
int executor_plan(const struct model *model, const struct executor_config *config,
                  struct executor_info *info, struct error *err);

/* Bytes that a rank sends to the others (model_shard.h). */
struct executor_traffic {
    int64_t token_bytes; /* for a token of a step */
    int64_t row_bytes;   /* besides, for one that is sampled */
};

/* Fills in out[config->num_ranks], of ranks that can be planned. */
void executor_plan_traffic(const struct model *model, const struct executor_config *config,
                           struct executor_traffic *out);

#endif
