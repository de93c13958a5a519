/* The executor runs steps: it takes batches and returns sampled tokens. Only the engine thread
 * calls it. Steps run one after the other in the order in which they were submitted. While one
 * runs, the next can be submitted, so that the device starts it without waiting for the engine.
 *
 * It is an interface, so that tests can drive the whole engine with scripted tokens and without a
 * model. The real executor, executor_create, computes a model on one device: in one rank or, on a
 * CPU, in several that each have a share of the model. A rank has a backend, weights, workspace and
 * KV cache (engine/executor/rank.h). Each rank has a thread, in this process or in its own process
 * (engine/executor/remote_ranks.h); the steps of a single GPU are enqueued by the engine's thread.
 * Ranks share each layer, or the layers are divided among stages that have the same number of
 * ranks. A single rank can have a draft model. Stages compute different steps at the same time: no
 * token of a step may be one that is sampled by an earlier step that was not waited for. */
#ifndef QUIRE_ENGINE_EXECUTOR_EXECUTOR_H
#define QUIRE_ENGINE_EXECUTOR_EXECUTOR_H

#include "config/base/check.h"
#include "config/base/error.h"
#include "config/serving_limits.h"
#include "engine/executor/host_memory.h"
#include "engine/stats/engine_stats.h"
#include "kernels/tuning.h"
#include "models/batch.h"
#include "models/files/content_hash.h"
#include "models/config/model.h"
#include "models/weights/weights.h"
#include "models/weights/weights_reader.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct executor;
struct step_turns;

#define EXECUTOR_MAX_STEPS 2 /* submitted and not waited for */

/* Block b of pool i is at data[i] + b * block_bytes[i]. */
struct host_pools {
    int32_t count; /* of all ranks; each has one for the model, the draft model, and its states */
    char *data[HOST_POOLS_PER_RANK * BACKEND_MAX_RANKS];
    size_t block_bytes[HOST_POOLS_PER_RANK * BACKEND_MAX_RANKS];
};

struct executor_ops {
    /* Hands over one step. The batch and the memory of the result belong to the executor until the
     * step was waited for; the late inputs of the batch, if it has any, only from supply on. A
     * batch with draft requests comes while no other step is submitted. */
    void (*submit)(struct executor *executor, const struct batch *batch,
                   struct step_result *result);
    /* Reports that the late inputs of the step submitted last are complete. Called once for a batch
     * that has some, before it is waited for; never for others. */
    void (*supply)(struct executor *executor);
    /* Waits for the oldest step that was submitted. Returns 0, or -1. ERROR_DEVICE: the executor is
     * unusable, and every later step ends the same way; if it hangs (executor_has_hung), it keeps
     * the memory of the steps forever. ERROR_RESTART: the ranks are lost, and with them everything
     * that the KV blocks of both pools held. The other steps that were submitted end the same way,
     * and their late inputs are no longer supplied; none is submitted before a restart. */
    int (*wait)(struct executor *executor, struct error *err);
    /* Every step was waited for, and the executor does not hang. */
    void (*destroy)(struct executor *executor);
    /* Stores the memory of one more step, for batches and results of this capacity
     * (step_memory_bytes). The executor owns it; NULL: any memory will do. Called for every step
     * that is submitted, before the first of them; at most EXECUTOR_MAX_STEPS times, always with
     * the same capacity. Returns -1 when memory is short. */
    int (*step_memory)(struct executor *executor, const struct batch_capacity *capacity,
                       void **out);
    /* Called while no step is submitted, every second if the executor can_lose_ranks. Returns 0, or
     * what wait would return. */
    int (*check)(struct executor *executor, struct error *err);
    /* Called after ERROR_RESTART, while no step is submitted. Starts the ranks again, with the same
     * weights and limits, which takes as long as loading them. Returns 0; -1 with ERROR_RESTART,
     * after which it may be tried again; or -1 with another error: the executor is unusable. */
    int (*restart)(struct executor *executor, struct error *err);
    /* Gives memory back until wake. Only for an executor that can_sleep, while no step is submitted
     * and the ranks are not lost. Frees the memory of both pools, with what the KV blocks held.
     * With discards_weights, frees everything that the ranks have; it is read from the model's
     * files again. An executor that sleeps and still has its ranks' memory can give that back
     * later. The executor may hang. */
    void (*sleep)(struct executor *executor, bool discards_weights);
    /* Allocates the memory of a sleeping executor again, in the same sizes. Returns 0, or -1: it
     * still sleeps, unless it hangs, and may be woken again. */
    int (*wake)(struct executor *executor, struct error *err);
    /* Writes the statistics of each rank and returns the number of ranks, at most
     * BACKEND_MAX_RANKS; 0: not known, as for a single GPU. Those of ranks in other processes are
     * up to a second old while steps run, and start from zero when the ranks are started again. Any
     * thread. */
    int32_t (*rank_stats)(struct executor *executor, struct rank_stats *out);
    /* Writes where this process has the host block pools of all ranks, until the executor sleeps,
     * is restarted or destroyed. None if it cannot read them: they are in other processes that do
     * not share them, or there are none. */
    void (*host_pools)(struct executor *executor, struct host_pools *out);
};

/* No entry of the table is NULL, and the table does not change while the executor lives. */
struct executor {
    const struct executor_ops *ops;
    bool can_lose_ranks; /* they are other processes */
    bool can_sleep;
    atomic_bool has_hung;         /* see executor_has_hung */
    atomic_bool stops_restarting; /* see executor_stop_restarting */
};

/* Returns whether a device has not answered within the timeout. Everything that it was given,
 * executor and model included, can then never be freed, and exit(3) may wait for it: the process
 * must leave with _exit(2). If a GPU keeps the engine's thread in a call that enqueues, the process
 * ends itself with status 70. Any thread. */
static inline bool executor_has_hung(struct executor *executor) {
    return atomic_load(&executor->has_hung);
}

/* Makes a restart that is running end soon, and each later one end at once, with ERROR_RESTART. Any
 * thread. */
static inline void executor_stop_restarting(struct executor *executor) {
    atomic_store(&executor->stops_restarting, true);
}

/* --- Default entries, for executors that do less --- */

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

static inline void executor_shares_no_host_pools(struct executor *executor,
                                                 struct host_pools *out) {
    out->count = 0;
}

/* For entries that are never called: restart if there is no ERROR_RESTART, sleep and wake without
 * can_sleep. */
static inline int executor_cannot_start_again(struct executor *executor, struct error *err) {
    CHECK(false);
    return -1;
}

static inline void executor_cannot_sleep(struct executor *executor, bool discards_weights) {
    CHECK(false);
}

/* All entries except submit, supply, wait and destroy, for an executor that only runs steps. */
#define EXECUTOR_RUNS_STEPS                                                                        \
    .step_memory = executor_takes_any_memory, .check = executor_keeps_ranks,                       \
    .restart = executor_cannot_start_again, .sleep = executor_cannot_sleep,                        \
    .wake = executor_cannot_start_again, .rank_stats = executor_has_no_stats,                      \
    .host_pools = executor_shares_no_host_pools

#define EXECUTOR_SWAP_AUTO SIZE_MAX

/* Configures the real executor. */
struct executor_config {
    const char *device; /* a name that backend_open accepts; "auto": cuda if it can be used,
                           otherwise cpu */
    enum dtype dtype;   /* of a GPU's activations; DTYPE_AUTO: the model's. On the CPU, BF16 allows
                           products with BF16 weights to round them (backend.h) */
    enum kv_type kv_type;          /* KV_AUTO: the model's; on a GPU, that of its activations */
    enum dtype quantization;       /* Q8_0: a CPU converts float weights to it; DTYPE_NONE: none */
    bool batch_invariant;          /* of a GPU; a CPU always is */
    bool fp8_activations;          /* of a GPU: see backend_config */
    bool fast_sums;                /* of several GPUs: see backend_config */
    bool enforce_eager;            /* a GPU's decode steps are not recorded */
    double gpu_memory_utilization; /* share of a GPU's memory that is used in total */
    int32_t num_threads;           /* of a CPU, all ranks together; 0: one per available core */
    /* See backend_config.isa: of a CPU, of a GPU. They outlive the executor. */
    const char *cpu_isa, *gpu_isa;
    int32_t num_ranks;  /* which share each layer; 0: one */
    int32_t num_stages; /* among which the layers are divided, each of num_ranks ranks; at most
                           BACKEND_MAX_RANKS ranks in total; 0: one */
    /* If it is given, each rank is a process: this one is rank transport->rank, and rank 0 has the
     * engine. Outlives the executor. NULL: the ranks are threads. */
    struct transport *transport;
    enum weights_load_mode load_mode; /* with a transport */
    const char *build;                /* with a transport: of this program (config/build_hash.h) */
    int32_t device_timeout_s; /* for the work that a GPU is given at once, mainly a step, before it
                                 counts as hanging; 0: it may take forever */
    size_t kv_memory_bytes;   /* of the KV block pool; 0: chosen from the available memory */
    size_t swap_bytes;        /* of the host block pool, rounded down to whole blocks; 0: none;
                                 EXECUTOR_SWAP_AUTO: by device */
    size_t kept_bytes;        /* added to these for tiers of the KV cache (block_manager.h) */
    int host_memory_fd;       /* where they lie, if another process shares them (host_memory.h); 0:
                                 each rank allocates its own */
    bool shares_host_pools;   /* with a process_executor: they are such memory */
    int32_t most_model_len;   /* bound of a length that is chosen; 0: it was requested */
    /* max_num_seqs and max_num_batched_tokens may be 0: chosen by device. max_model_len may be 0
     * too: as many tokens as the KV cache has room for, up to most_model_len. max_logit_rows and
     * the numbers of blocks are not read: they are always chosen. */
    struct serving_limits limits;
    /* Of a CPU; its texts outlive the executor. folder or build NULL: none. */
    struct packed_cache_place packed_cache;
    struct lora_shape lora; /* room for adapters; dtype DTYPE_AUTO: a GPU's activations, F16 on a
                               CPU */
    /* Proposes tokens before a step (rank_draft.h), with the same vocabulary as the model
     * but for padding. Only with one rank. Outlives the executor. NULL: none. */
    const struct model *draft_model;
    bool has_mtp;                     /* it is a layer of the model (models/config/mtp.h) */
    struct weights_progress progress; /* of loading; zeroed: not reported */
    /* If it is given, a CPU computes a step with tokens only in the turn of this slot. Outlives the
     * executor. NULL: whenever the step comes. */
    struct step_turns *turns;
    int32_t turn_slot;
};

/* Memory by part, for the table printed at start. On a CPU the ranks share the system's memory: the
 * sizes that are requested or chosen are for all of them together. */
struct executor_memory {
    size_t weight_bytes;
    size_t adapter_bytes;   /* of the slots */
    size_t draft_bytes;     /* of the draft model: weights and workspace */
    size_t workspace_bytes; /* of the forward pass and of the backend's ops */
    size_t kv_bytes;        /* of the KV block pool, with the draft model's keys and values */
    size_t swap_bytes;      /* of the host block pool, likewise */
    size_t recorded_bytes;  /* of a GPU: recorded decode steps */
    size_t overhead_bytes;  /* of a GPU: driver, libraries and other processes */
    size_t free_bytes;      /* of a GPU */
};

#define EXECUTOR_PLACE_BYTES 80
#define EXECUTOR_NUMERICS_BYTES 256 /* those of a backend */

/* Describes the executor as it was created. */
struct executor_info {
    struct serving_limits limits; /* complete */
    int32_t most_model_len;       /* of the configuration */
    bool kv_was_requested;        /* the KV cache's size, not chosen from the available memory */
    char device[32];              /* "cpu", "cuda" */
    char description[128];        /* for people: instruction set and threads, or GPU */
    char why_cpu[512];            /* why "auto" is not cuda; empty otherwise */
    char numerics[EXECUTOR_NUMERICS_BYTES]; /* of the backends */
    bool has_dedicated_memory;              /* the device has its own memory: a GPU */
    bool batch_invariant;
    enum dtype activation_dtype;
    enum kv_type kv_type;
    struct lora_shape lora; /* of the slots; zeros: none */
    /* Computed from the model's settings and bytes (weights_digest.h): equal for models that agree
     * in everything that could change an answer. Zeros if the executor is only planned, and on rank
     * 1 and higher of several processes. */
    uint8_t model_digest[CONTENT_HASH_BYTES];
    uint8_t draft_digest[CONTENT_HASH_BYTES]; /* of the draft model; zeros: there is none */
    int64_t swap_block_ns; /* time to move one block to the host block pool, measured at start; 0:
                              no such pool, or only planned */
    bool has_mtp;          /* of the configuration */
    bool records_steps;    /* a GPU replays decode steps */
    int32_t num_recorded;  /* sizes of these steps; 0: only planned */
    int64_t recording_ns;  /* time that this took at start */
    struct tuning_report tuning;   /* of a GPU's matrix products; zeros if only planned */
    struct executor_memory memory; /* of all ranks */
    size_t at_hand_bytes; /* of a CPU: available system memory, with everything except the pools
                             allocated or planned */
    int32_t num_ranks;    /* of all stages */
    int32_t num_stages;
    /* Of the pools of each rank in this process; 0: there is no such pool. */
    size_t pool_block_bytes[HOST_POOLS_PER_RANK * BACKEND_MAX_RANKS];
    struct executor_memory rank_memory[BACKEND_MAX_RANKS];     /* of each */
    char rank_places[BACKEND_MAX_RANKS][EXECUTOR_PLACE_BYTES]; /* if several; for people */
    pid_t rank_process; /* in which they live, at first (process_executor.h); 0: this one */
};

/* Returns 0 once the weights are loaded and the memory of both pools is allocated. What does not
 * fit, judged by the model's headers, is refused before. The model outlives the executor. *info is
 * filled in only on success. ERROR_CONFIG: the device does not exist, or an option does not suit
 * it. ERROR_MEMORY: which part does not fit, how much is missing and what helps. ERROR_DEVICE: the
 * device failed. On failure *out is NULL, or an executor that hangs. */
int executor_create(const struct model *model, const struct executor_config *config,
                    struct executor_info *info, struct executor **out, struct error *err);

/* Replaces every open choice in the configuration by what was chosen for ranks that have started,
 * so that others choose the same although the available memory has changed. config->device points
 * into *info. */
void executor_info_fix(const struct executor_info *info, struct executor_config *config);
/* Checks that ranks which were started again are like the first ones, and logs differences that
 * affect only bits. ERROR_MODEL: the model's files are others. ERROR_DEVICE: the sizes are
 * others. */
int executor_info_compare(const struct executor_info *first, const struct executor_info *now,
                          struct error *err);

/* Fills in what executor_create would, from the model's headers only: the device is opened, but
 * nothing is loaded. A GPU's overhead is what is in use now; its libraries will take more. Errors
 * are those of executor_create. */
int executor_plan(const struct model *model, const struct executor_config *config,
                  struct executor_info *info, struct error *err);

/* Bytes that a rank sends to the others (model_shard.h). */
struct executor_traffic {
    int64_t token_bytes; /* for each token of a step */
    int64_t row_bytes;   /* in addition, for each token that is sampled */
};

/* Fills in out[config->num_ranks], for ranks that can be planned. */
void executor_plan_traffic(const struct model *model, const struct executor_config *config,
                           const struct executor_info *info, struct executor_traffic *out);

#endif
