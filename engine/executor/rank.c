/* The order of loading, and which part an error names when memory is short:
 *
 *   backend      with the workspace of its ops
 *   weights      \
 *   adapters      | checked against the free memory before anything is read
 *   llama         |
 *   draft model  /   weights and workspace
 *   dry run      only on a GPU: drivers and libraries allocate what they need on first use,
 *                algorithms are timed, and decode steps are recorded, and dropped again
 *
 * then, once it is known how many blocks every rank has room for (sizing.h)
 *
 *   KV cache     each pool with the draft model's, and with hidden states for an MTP layer
 *   recorded     decode steps, which read and write this cache
 *   host pool    for swapped blocks, in the system's memory */
#include "engine/executor/rank.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/numbers.h"

#include <stddef.h>
#include <string.h>

/* --- What has blocks --- */

/* A cache and its host block pool: the model's, the draft model's, and those of hidden states. */
struct pools {
    struct kv_cache *cache;
    struct buffer *host_pool;
};
#define MAX_POOLS HOST_POOLS_PER_RANK

/* Returns their number. */
static int list_pools(struct rank *rank, struct pools out[static MAX_POOLS]) {
    struct rank_draft *draft = &rank->draft;
    out[0] = (struct pools){&rank->cache, &rank->host_pool};
    out[1] = (struct pools){&draft->cache, &draft->host_pool};
    out[2] = (struct pools){&draft->states, &draft->states_host_pool};
    return !rank_has_draft(rank) ? 1 : rank_draft_has_states(draft) ? 3 : 2;
}

int rank_pool_block_bytes(const struct rank *rank, size_t out[static HOST_POOLS_PER_RANK]) {
    const struct rank_draft *draft = &rank->draft;
    int count = 0;
    out[count++] = kv_block_bytes(&rank->cache.layout);
    if (rank_has_draft(rank))
        out[count++] = kv_block_bytes(&draft->cache.layout);
    if (rank_draft_has_states(draft))
        out[count++] = kv_block_bytes(&draft->states.layout);
    return count;
}

size_t rank_block_bytes(const struct rank *rank) {
    size_t each[HOST_POOLS_PER_RANK], bytes = 0;
    int count = rank_pool_block_bytes(rank, each);
    for (int i = 0; i < count; i++)
        bytes += each[i];
    return bytes;
}

void rank_add_host_pools(struct rank *rank, struct host_pools *out) {
    struct pools pools[MAX_POOLS];
    int num_pools = list_pools(rank, pools);
    rank_pool_block_bytes(rank, &out->block_bytes[out->count]);
    for (int i = 0; i < num_pools && rank->limits.num_host_blocks > 0; i++)
        out->data[out->count++] = pools[i].host_pool->data;
}

/* --- The size of each part --- */

/* Returns the bytes of the device's memory that are free now. */
static size_t free_bytes_of(const struct rank *rank) {
    size_t free, total;
    rank->backend->ops->memory_info(rank->backend, &free, &total);
    return free;
}

static int check_room(const struct rank *rank, const char *part, size_t needed, const char *remedy,
                      struct error *err) {
    if (!rank->backend->has_dedicated_memory)
        return 0;
    size_t free = free_bytes_of(rank);
    if (needed <= free)
        return 0;
    return error_set(err, ERROR_MEMORY,
                     "out of device memory for the %s: %.1f MiB needed, %.1f MiB free, %.1f MiB "
                     "missing; %s",
                     part, mib(needed), mib(free), mib(needed - free), remedy);
}

/* The size of each part is stored in rank->memory before anything of the part is allocated. A part
 * that a GPU has no room for is an ERROR_MEMORY that says how much is missing and what helps. The
 * system's memory is allocated lazily and shared, so only a GPU's is accounted for here. */
static int plan_weights(struct rank *rank, struct error *err) {
    const struct backend *b = rank->backend;
    size_t bytes = weights_needed(rank->model, &rank->shard, &rank->weights_options, b);
    rank->memory.weight_bytes = bytes;
    return check_room(rank, "weights", bytes,
                      "serve a smaller model, stop other programs that use the GPU, or lower "
                      "--max-num-batched-tokens or --max-num-seqs",
                      err);
}

static int plan_adapters(struct rank *rank, struct error *err) {
    const struct backend *b = rank->backend;
    if (rank->config.lora.num_slots == 0)
        return 0;
    size_t bytes = lora_slots_needed(&rank->model->config, &rank->shard, &rank->config.lora,
                                     b->has_dedicated_memory ? b->activation_dtype : DTYPE_NONE);
    rank->memory.adapter_bytes = bytes;
    return check_room(rank, "adapters", bytes, "lower --max-loras or --max-lora-rank", err);
}

/* *out_bytes: what llama_create will allocate, in addition to what the backend took when it was
 * opened. */
static int plan_workspace(struct rank *rank, size_t *out_bytes, struct error *err) {
    const struct backend *b = rank->backend;
    const struct lora_shape *lora = rank->config.lora.num_slots > 0 ? &rank->config.lora : NULL;
    size_t bytes = llama_workspace_needed(&rank->model->config, &rank->shard, lora,
                                          b->activation_dtype, b->head_rows_step, &rank->limits);
    rank->memory.workspace_bytes = bytes + b->workspace_bytes;
    *out_bytes = bytes;
    return check_room(rank, "workspace", bytes, "lower --max-num-batched-tokens or --max-num-seqs",
                      err);
}

static int plan_draft(struct rank *rank, struct error *err) {
    if (!rank_has_draft(rank))
        return 0;
    size_t bytes = rank_draft_plan(&rank->draft, &rank->limits, &rank->weights_options);
    rank->memory.draft_bytes = bytes;
    return check_room(rank, "draft model", bytes,
                      "serve a smaller draft model, or lower --max-num-batched-tokens or "
                      "--max-num-seqs",
                      err);
}

/* Stores what is left for the pools. planned_bytes: known to be needed and not allocated yet. */
static void measure_free(struct rank *rank, size_t planned_bytes) {
    struct executor_memory *memory = &rank->memory;
    size_t free, total;
    rank->backend->ops->memory_info(rank->backend, &free, &total);
    rank->free_bytes = free;
    rank->total_bytes = total;
    rank->planned_bytes = planned_bytes;
    size_t left = free > planned_bytes ? free - planned_bytes : 0;
    size_t used = total - left, known = memory->weight_bytes + memory->adapter_bytes +
                                        memory->draft_bytes + memory->workspace_bytes +
                                        memory->recorded_bytes;
    memory->overhead_bytes = used > known ? used - known : 0;
}

/* --- Opening, loading and closing --- */

static int load_weights(struct rank *rank, struct weights_reader *reader, struct error *err) {
    struct backend *b = rank->backend;
    if (plan_weights(rank, err) != 0)
        return -1;
    size_t before = free_bytes_of(rank);
    if (weights_load(b, rank->model, &rank->shard, reader, &rank->weights_options, &rank->weights,
                     err) != 0)
        return -1;
    rank_watch_begin(rank->watch);
    int status = b->ops->synchronize(b, err);
    rank_watch_end(rank->watch);
    if (status != 0)
        return -1;
    size_t after = free_bytes_of(rank);
    rank->memory.weight_bytes = rank->weights->bytes;
    if (b->has_dedicated_memory && before > after)
        rank->memory.weight_bytes = before - after;
    return 0;
}

static int create_adapters(struct rank *rank, struct error *err) {
    struct error why = {0};
    if (plan_adapters(rank, err) != 0)
        return -1;
    if (rank->config.lora.num_slots == 0)
        return 0;
    rank_watch_begin(rank->watch);
    int status = lora_slots_create(rank->backend, &rank->model->config, &rank->shard,
                                   &rank->config.lora, &rank->lora, &why);
    rank_watch_end(rank->watch);
    if (status != 0)
        return rank_explain(&why, "adapters", "lower --max-loras or --max-lora-rank", err);
    rank->memory.adapter_bytes = lora_slots_bytes(rank->lora);
    return 0;
}

static int create_llama(struct rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    size_t bytes;
    if (plan_workspace(rank, &bytes, err) != 0)
        return -1;
    rank_watch_begin(rank->watch);
    int status = llama_create(b, &rank->model->config, &rank->shard, rank->weights, rank->lora,
                              &rank->limits, &rank->llama, err);
    rank_watch_end(rank->watch);
    if (status != 0)
        return -1;
    rank->memory.workspace_bytes = llama_workspace_bytes(rank->llama) + b->workspace_bytes;
    return 0;
}

static int load_draft(struct rank *rank, struct weights_reader *reader, struct error *err) {
    if (plan_draft(rank, err) != 0)
        return -1;
    if (!rank_has_draft(rank))
        return 0;
    size_t before = free_bytes_of(rank);
    if (rank_draft_load(&rank->draft, reader, &rank->weights_options, rank->weights, rank->watch,
                        err) != 0)
        return -1;
    if (rank_draft_has_states(&rank->draft))
        llama_set_states(rank->llama, &rank->draft.states.buffer);
    size_t after = free_bytes_of(rank);
    rank->memory.draft_bytes = rank_draft_bytes(&rank->draft);
    if (rank->backend->has_dedicated_memory && before > after)
        rank->memory.draft_bytes = before - after;
    return 0;
}

static int alloc_blocks(struct rank *rank, int32_t num_blocks, struct error *err) {
    struct backend *b = rank->backend;
    struct pools pools[MAX_POOLS];
    int num_pools = list_pools(rank, pools);
    for (int i = 0; i < num_pools; i++) {
        struct kv_cache *cache = pools[i].cache;
        cache->num_blocks = num_blocks;
        if (b->ops->buffer_alloc(b, (size_t)num_blocks * kv_block_bytes(&cache->layout),
                                 &cache->buffer, err) != 0)
            return -1;
    }
    return 0;
}

static void free_blocks(struct rank *rank) {
    struct pools pools[MAX_POOLS];
    int num_pools = list_pools(rank, pools);
    for (int i = 0; i < num_pools; i++)
        rank->backend->ops->buffer_free(rank->backend, &pools[i].cache->buffer);
}

static int record_steps(struct rank *rank, struct error *err) {
    struct error why = {0};
    if (!rank->records_steps)
        return 0;
    int64_t begin = clock_now_ns();
    rank_watch_begin(rank->watch);
    int status = llama_record(rank->llama, &rank->cache, &why);
    if (status == 0 && rank_has_draft(rank))
        status = llama_record(rank->draft.llama, &rank->draft.cache, &why);
    rank_watch_end(rank->watch);
    rank->recording_ns += clock_now_ns() - begin;
    return status == 0 ? 0
                       : rank_explain(&why, "recorded decode steps",
                                      "lower --gpu-memory-utilization or --max-num-seqs", err);
}

static void forget_steps(struct rank *rank) {
    llama_forget_recorded(rank->llama);
    if (rank_has_draft(rank))
        llama_forget_recorded(rank->draft.llama);
}

/* *out_returned: bytes of the recorded steps that are free again until steps are recorded for the
 * cache. */
static int run_dry(struct rank *rank, size_t *out_returned, struct error *err) {
    struct error why = {0};
    const struct dry_run_model models[] = {
        {rank->llama, &rank->cache, &rank->limits, rank->lora != NULL},
        {rank->draft.llama, &rank->draft.cache, &rank->draft.limits, false},
    };
    if (alloc_blocks(rank, 2, &why) != 0 ||
        dry_run(rank->backend, models, rank_has_draft(rank) ? 2 : 1, rank->watch, &rank->tuning,
                &why) != 0)
        return rank_explain(&why, "largest step",
                            "lower --max-num-batched-tokens or --max-num-seqs", err);
    size_t before = free_bytes_of(rank);
    if (record_steps(rank, err) != 0)
        return -1;
    size_t with_steps = free_bytes_of(rank);
    forget_steps(rank);
    size_t after = free_bytes_of(rank);
    rank->memory.recorded_bytes = before > with_steps ? before - with_steps : 0;
    *out_returned = after > with_steps ? after - with_steps : 0;
    free_blocks(rank);
    return 0;
}

static int plan_memory(struct rank *rank, struct error *err) {
    size_t workspace_bytes;
    if (plan_weights(rank, err) != 0 || plan_adapters(rank, err) != 0 ||
        plan_workspace(rank, &workspace_bytes, err) != 0 || plan_draft(rank, err) != 0)
        return -1;
    measure_free(rank, rank->memory.weight_bytes + rank->memory.adapter_bytes + workspace_bytes +
                           rank->memory.draft_bytes);
    return 0;
}

int rank_open(const struct rank_setup *setup, int32_t index, int32_t num_threads, struct rank *out,
              struct error *err) {
    int status = rank_open_backend(setup, index, num_threads, out, err);
    out->index = index;
    if (status == 0 && plan_memory(out, err) == 0)
        return 0;
    rank_close(out);
    return -1;
}

int rank_plan_length(struct rank *rank, int32_t max_model_len, struct error *err) {
    rank->config.limits.max_model_len = max_model_len;
    rank->limits.max_model_len = max_model_len;
    rank->weights_options.max_model_len = max_model_len;
    return plan_memory(rank, err);
}

int rank_load(struct rank *rank, struct weights_reader *reader, struct weights_reader *draft_reader,
              struct error *err) {
    if (load_weights(rank, reader, err) != 0 || create_adapters(rank, err) != 0 ||
        create_llama(rank, err) != 0)
        return -1;
    return load_draft(rank, draft_reader, err);
}

int rank_try(struct rank *rank, struct error *err) {
    size_t returned_bytes = 0;
    if (rank->backend->has_dedicated_memory && run_dry(rank, &returned_bytes, err) != 0)
        return -1;
    size_t mapped_bytes = rank->weights->mapped_bytes;
    if (rank_has_draft(rank))
        mapped_bytes += rank->draft.weights->mapped_bytes;
    measure_free(rank, returned_bytes + mapped_bytes);
    return 0;
}

static int create_cache(struct rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    struct error why = {0};
    rank_watch_begin(rank->watch);
    int status = alloc_blocks(rank, rank->limits.num_blocks, &why);
    if (status == 0)
        status = b->ops->synchronize(b, &why);
    rank_watch_end(rank->watch);
    if (status != 0)
        return rank_explain(&why, "KV cache",
                            "lower --gpu-memory-utilization or --kv-cache-memory-bytes", err);
    return 0;
}

/* In memory that is shared, if there is any. */
static int alloc_host_pool(struct rank *rank, int32_t pool, size_t bytes, struct buffer *out,
                           struct error *err) {
    struct backend *b = rank->backend;
    int fd = rank->config.host_memory_fd;
    if (fd == 0)
        return b->ops->host_alloc(b, bytes, out, err);
    void *memory = host_memory_map(fd, rank->index * HOST_POOLS_PER_RANK + pool, bytes, err);
    if (memory == NULL)
        return -1;
    if (b->ops->host_pin(b, memory, bytes, err) != 0) {
        host_memory_unmap(memory, bytes);
        return -1;
    }
    *out = (struct buffer){.data = memory, .bytes = bytes};
    return 0;
}

static void free_host_pool(struct rank *rank, struct buffer *host_pool) {
    struct backend *b = rank->backend;
    if (rank->config.host_memory_fd == 0) {
        b->ops->host_free(b, host_pool);
        return;
    }
    if (host_pool->data != NULL)
        b->ops->host_unpin(b, host_pool->data);
    host_memory_release(host_pool->data, host_pool->bytes);
    host_memory_unmap(host_pool->data, host_pool->bytes);
    *host_pool = (struct buffer){0};
}

/* Adds the time that it takes to move a block. */
static int create_host_pool(struct rank *rank, int32_t pool, struct kv_cache *cache,
                            struct buffer *host_pool, struct error *err) {
    struct backend *b = rank->backend;
    int32_t num_blocks = rank->limits.num_host_blocks;
    int64_t block_ns = 0;
    struct error why = {0};
    if (alloc_host_pool(rank, pool, (size_t)num_blocks * kv_block_bytes(&cache->layout), host_pool,
                        &why) != 0)
        return rank_explain(&why, "host pool of KV blocks", "lower --swap-space", err);
    rank_watch_begin(rank->watch);
    int status = rank_moves_measure(b, cache, host_pool->data, num_blocks, &block_ns, err);
    rank_watch_end(rank->watch);
    rank->swap_block_ns += block_ns;
    return status;
}

static int create_host_pools(struct rank *rank, struct error *err) {
    rank->swap_block_ns = 0;
    if (rank->limits.num_host_blocks == 0)
        return 0;
    struct pools pools[MAX_POOLS];
    int num_pools = list_pools(rank, pools);
    for (int i = 0; i < num_pools; i++)
        if (create_host_pool(rank, i, pools[i].cache, pools[i].host_pool, err) != 0)
            return -1;
    return 0;
}

int rank_allocate(struct rank *rank, struct error *err) {
    if (create_cache(rank, err) != 0 ||
        (rank->backend->has_dedicated_memory && record_steps(rank, err) != 0))
        return -1;
    rank->memory.free_bytes = free_bytes_of(rank);
    return create_host_pools(rank, err);
}

static void free_pools(struct rank *rank) {
    struct pools pools[MAX_POOLS];
    int num_pools = list_pools(rank, pools);
    for (int i = 0; i < num_pools; i++)
        free_host_pool(rank, pools[i].host_pool);
    free_blocks(rank);
}

void rank_release(struct rank *rank) {
    rank_watch_begin(rank->watch);
    if (rank->records_steps)
        forget_steps(rank);
    free_pools(rank);
    rank_watch_end(rank->watch);
}

void rank_close(struct rank *rank) {
    llama_destroy(rank->llama);
    if (rank->backend != NULL)
        free_pools(rank);
    rank_draft_close(&rank->draft);
    if (rank->backend != NULL) {
        lora_slots_destroy(rank->lora);
        weights_free(rank->backend, rank->weights);
        backend_close(rank->backend);
    }
    *rank = (struct rank){0};
}

/* --- Steps --- */

void rank_begin(struct rank *rank, const struct batch *batch, struct step_result *result) {
    struct batch with_drafts;
    struct pools pools[MAX_POOLS];
    rank_watch_begin(rank->watch);
    rank_write_adapters(rank, batch);
    int num_pools = list_pools(rank, pools);
    for (int i = 0; i < num_pools; i++)
        rank_moves_enqueue(rank->backend, pools[i].cache, pools[i].host_pool->data, batch);
    if (batch->num_draft_requests > 0) {
        rank_watch_end(rank->watch);
        with_drafts = rank_draft_run(&rank->draft, batch, result, rank->watch);
        batch = &with_drafts;
        rank_watch_begin(rank->watch);
    }
    if (batch->inputs.num_tokens > 0)
        llama_forward(rank->llama, &rank->cache, batch);
    rank_watch_end(rank->watch);
}

void rank_sample(struct rank *rank, const struct batch *batch, struct step_result *result) {
    CHECK(batch->inputs.num_tokens > 0 ||
          (batch->num_sample_rows == 0 && batch->num_hidden_sums == 0));
    rank_watch_begin(rank->watch);
    llama_sample(rank->llama, batch, result);
    rank->backend->ops->step_end(rank->backend);
    rank_watch_end(rank->watch);
}

int rank_wait(struct rank *rank, struct error *err) {
    rank_watch_begin(rank->watch);
    int status = rank->backend->ops->step_wait(rank->backend, err);
    rank_watch_end(rank->watch);
    if (status == 0 && rank->failure.code != ERROR_NONE)
        return error_set(err, rank->failure.code, "%s", rank->failure.message);
    return status;
}

struct backend_group_traffic rank_traffic(const struct rank *rank) {
    struct backend_group_traffic sums = {0}, rows = {0};
    if (rank->group != NULL)
        backend_group_get_traffic(rank->group, rank->shard.rank, &sums);
    if (rank->pipeline != NULL)
        backend_pipeline_get_traffic(rank->pipeline, rank->stage, rank->shard.rank, &rows);
    return (struct backend_group_traffic){.bytes_sent = sums.bytes_sent + rows.bytes_sent,
                                          .bytes_received =
                                              sums.bytes_received + rows.bytes_received,
                                          .wait_ns = sums.wait_ns + rows.wait_ns};
}

bool rank_is_asynchronous(const struct rank *rank) {
    return rank->backend->ops->step_is_done != NULL;
}

bool rank_is_done(const struct rank *rank) {
    return rank->backend->ops->step_is_done(rank->backend);
}
