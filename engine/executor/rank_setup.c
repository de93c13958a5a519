#include "engine/executor/rank_setup.h"

#include "config/base/check.h"
#include "config/base/cores.h"
#include "config/base/numbers.h"
#include "engine/executor/numa_nodes.h"
#include "engine/executor/sizing.h"
#include "kernels/transport.h"
#include "models/weights/weights_reader.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NODES_DIR "/sys/devices/system/node"

/* FNV-1a, 32 bits (Fowler, Noll, Vo). */
#define FNV_OFFSET 2166136261U
#define FNV_PRIME 16777619U

/* If the ranks are processes, each has its own stage's group. */
static int create_groups(struct rank_setup *setup, int32_t per_stage, struct error *err) {
    struct transport *transport = setup->config->transport;
    int32_t own = setup->first_rank / per_stage;
    int status = 0;
    if (per_stage == 1)
        return 0;
    if (transport != NULL)
        return backend_group_create_remote(setup->device, transport, own * per_stage, per_stage,
                                           &setup->groups[own], err);
    for (int32_t s = 0; s < setup->num_stages && status == 0; s++)
        status = backend_group_create(setup->device, per_stage, &setup->groups[s], err);
    return status;
}

static int create_pipeline(struct rank_setup *setup, int32_t per_stage, struct error *err) {
    struct transport *transport = setup->config->transport;
    if (setup->num_stages == 1)
        return 0;
    return transport != NULL
               ? backend_pipeline_create_remote(setup->device, transport, setup->num_stages,
                                                per_stage, &setup->pipeline, err)
               : backend_pipeline_create(setup->device, setup->num_stages, per_stage,
                                         &setup->pipeline, err);
}

static void disconnect_ranks(struct rank_setup *setup) {
    backend_pipeline_destroy(setup->pipeline);
    setup->pipeline = NULL;
    for (int32_t s = 0; s < BACKEND_MAX_RANKS; s++) {
        backend_group_destroy(setup->groups[s]);
        setup->groups[s] = NULL;
    }
}

/* *out_option: with an error, the option that it is about; NULL: the error names it. */
static int connect_on(struct rank_setup *setup, const char *device, const char **out_option,
                      struct error *err) {
    int32_t per_stage = setup->num_ranks / setup->num_stages;
    struct model_shard shard;
    setup->device = device;
    *out_option = "tensor-parallel-size";
    if (create_groups(setup, per_stage, err) != 0)
        return -1;
    *out_option = NULL;
    if (model_shard_init_stage(setup->model, setup->config->quantization, 0, per_stage,
                               setup->num_stages, &shard, err) != 0)
        return -1;
    *out_option = "pipeline-parallel-size";
    return create_pipeline(setup, per_stage, err);
}

/* Creates what connects the ranks. The model must be one that can be divided this way. If the ranks
 * may choose, they are on GPUs if there is one for each, otherwise on the CPU. */
static int connect_ranks(struct rank_setup *setup, struct error *err) {
    bool is_auto = strcmp(setup->device, "auto") == 0;
    const char *option;
    struct error why = {0};
    if (setup->num_ranks == 1 ||
        connect_on(setup, is_auto ? "cuda" : setup->device, &option, &why) == 0)
        return 0;
    if (is_auto) {
        disconnect_ranks(setup);
        snprintf(setup->why_cpu, sizeof(setup->why_cpu), "%s", why.message);
        if (connect_on(setup, "cpu", &option, &why) == 0)
            return 0;
    }
    /* a device that cannot be used is an error of the configuration */
    return error_set(err, why.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_CONFIG, "%s%s%s",
                     option != NULL ? option : "", option != NULL ? ": " : "", why.message);
}

static int create_readers(struct rank_setup *setup, struct error *err) {
    const struct executor_config *config = setup->config;
    int status = config->transport == NULL
                     ? weights_reader_create(setup->model, setup->num_local, &setup->reader, err)
                     : weights_reader_create_remote(setup->model, config->transport,
                                                    config->load_mode, &setup->reader, err);
    if (status == 0)
        weights_reader_set_progress(setup->reader, config->progress);
    if (status == 0 && config->draft_model != NULL)
        status = weights_reader_create(config->draft_model, 1, &setup->draft_reader, err);
    return status;
}

int rank_setup_init(struct rank_setup *out, const struct model *model,
                    const struct executor_config *config, bool loads, struct error *err) {
    int32_t num_stages = max_int32(config->num_stages, 1);
    *out = (struct rank_setup){.model = model,
                               .config = config,
                               .device = config->device,
                               .num_ranks = max_int32(config->num_ranks, 1) * num_stages,
                               .num_stages = num_stages};
    out->num_local = config->transport != NULL ? 1 : out->num_ranks;
    out->first_rank = config->transport != NULL ? config->transport->rank : 0;
    if (rank_draft_check(config, err) != 0 || connect_ranks(out, err) != 0 ||
        (loads && create_readers(out, err) != 0)) {
        rank_setup_finish(out);
        return -1;
    }
    return 0;
}

void rank_setup_loaded(struct rank_setup *setup) {
    weights_reader_destroy(setup->reader);
    weights_reader_destroy(setup->draft_reader);
    setup->reader = setup->draft_reader = NULL;
}

void rank_setup_finish(struct rank_setup *setup) {
    rank_setup_loaded(setup);
    disconnect_ranks(setup);
    *setup = (struct rank_setup){0};
}

/* The launcher of the processes has bound each to its own cores, or to none. */
static struct rank_place place_process(const struct rank_setup *setup) {
    struct rank_place place = {.num_threads = setup->config->num_threads};
    cpu_set_t allowed;
    bool is_bound = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 &&
                    CPU_COUNT(&allowed) < sysconf(_SC_NPROCESSORS_ONLN);
    if (place.num_threads == 0)
        place.num_threads =
            is_bound ? cores_available()
                     : max_int32(cores_available() / setup->config->transport->num_local, 1);
    return place;
}

struct rank_place rank_setup_place(const struct rank_setup *setup, int32_t rank) {
    int32_t num_ranks = setup->num_ranks, num_threads = setup->config->num_threads;
    struct rank_place place = {.num_threads = num_threads};
    struct numa_nodes nodes;
    cpu_set_t allowed;
    if (num_ranks == 1)
        return place;
    if (setup->config->transport != NULL)
        return place_process(setup);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        CPU_ZERO(&allowed);
    numa_nodes_read(NODES_DIR, &allowed, &nodes);
    place.is_bound = numa_nodes_share(&nodes, rank, num_ranks, &place.cpus);
    if (num_threads == 0 && place.is_bound) {
        int32_t quota = cores_quota("") / num_ranks;
        place.num_threads = min_int32(CPU_COUNT(&place.cpus), max_int32(quota, 1));
        return place;
    }
    int32_t all = num_threads > 0 ? num_threads : cores_available();
    place.num_threads = max_int32(all * (rank + 1) / num_ranks - all * rank / num_ranks, 1);
    return place;
}

/* Writes "0-3,8-11": as many cores as fit. */
static void list_cores(const cpu_set_t *cpus, char *out, size_t size) {
    size_t length = 0;
    for (int first = 0; first < CPU_SETSIZE && length < size; first++) {
        int last = first;
        if (!CPU_ISSET(first, cpus))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
            last++;
        length += (size_t)snprintf(out + length, size - length, last > first ? "%s%d-%d" : "%s%d",
                                   length > 0 ? "," : "", first, last);
        first = last;
    }
}

void rank_setup_describe_place(const struct rank_setup *setup, const struct rank_place *place,
                               char *out) {
    char where[EXECUTOR_PLACE_BYTES / 2] = "";
    if (setup->config->transport != NULL)
        gethostname(where, sizeof(where) - 1);
    else if (place->is_bound)
        list_cores(&place->cpus, where, sizeof(where));
    snprintf(out, EXECUTOR_PLACE_BYTES, "%s%s%s%d thread%s", place->is_bound ? "cores " : "", where,
             where[0] != '\0' ? ", " : "", place->num_threads, place->num_threads == 1 ? "" : "s");
}

/* --- Blocks --- */

static size_t all_block_bytes(const struct rank *ranks, int32_t num_ranks) {
    size_t bytes = 0;
    for (int32_t r = 0; r < num_ranks; r++)
        bytes += rank_block_bytes(&ranks[r]);
    return bytes;
}

/* Returns the number of planes of a block (kv_layout.h) that a rank has. */
static int64_t num_planes(const struct model_shard *shard) {
    return (int64_t)shard->num_layers * shard->num_kv_heads;
}

/* Returns a rank's share of bytes that were requested for all. */
static size_t share_of_rank(const struct rank *rank, size_t bytes) {
    int32_t per_stage = rank->shard.num_ranks, num_stages = max_int32(rank->config.num_stages, 1);
    int64_t total = 0;
    for (int32_t r = 0; r < per_stage * num_stages; r++) {
        struct model_shard shard;
        CHECK(model_shard_init_stage(rank->model, rank->config.quantization, r, per_stage,
                                     num_stages, &shard, NULL) == 0);
        total += num_planes(&shard);
    }
    return (size_t)((double)bytes * (double)num_planes(&rank->shard) / (double)total);
}

/* Returns this process's share of them: all, or that of its only rank. */
static size_t share_of_process(const struct rank *rank, size_t bytes) {
    bool is_alone = rank->config.transport == NULL;
    return is_alone || bytes == EXECUTOR_SWAP_AUTO ? bytes : share_of_rank(rank, bytes);
}

/* The model's other processes on this machine need the same amount. */
static size_t share_of_machine(const struct rank *rank, size_t free_bytes) {
    const struct transport *transport = rank->config.transport;
    return transport != NULL ? free_bytes / (size_t)transport->num_local : free_bytes;
}

static size_t rest(size_t bytes, size_t taken) {
    return bytes > taken ? bytes - taken : 0;
}

/* Returns the budget on a device with its own memory. */
static struct kv_budget kv_budget_of_device(const struct rank *rank) {
    return (struct kv_budget){
        .block_bytes = rank_block_bytes(rank),
        .memory_bytes = share_of_rank(rank, rank->config.kv_memory_bytes),
        .free_bytes = rest(rank->free_bytes, rank->planned_bytes),
        .total_bytes = rank->total_bytes,
        .utilization = rank->config.gpu_memory_utilization,
    };
}

/* The system's memory that ranks in one process share: the least was left when the last one had
 * loaded. */
struct system_memory {
    size_t free_bytes, planned_bytes, weight_bytes, adapter_bytes, draft_bytes;
};

static struct system_memory system_memory_of(const struct rank *ranks, int32_t num_ranks) {
    struct system_memory memory = {.free_bytes = SIZE_MAX};
    for (int32_t r = 0; r < num_ranks; r++) {
        memory.free_bytes = min_size(memory.free_bytes, ranks[r].free_bytes);
        memory.planned_bytes += ranks[r].planned_bytes;
        memory.weight_bytes += ranks[r].memory.weight_bytes;
        memory.adapter_bytes += ranks[r].memory.adapter_bytes;
        memory.draft_bytes += ranks[r].memory.draft_bytes;
    }
    memory.free_bytes = share_of_machine(&ranks[0], memory.free_bytes);
    return memory;
}

/* A block takes its part of every rank. */
static struct kv_budget kv_budget_of_system(const struct rank *ranks, int32_t num_ranks) {
    const struct executor_config *config = &ranks[0].config;
    const struct system_memory memory = system_memory_of(ranks, num_ranks);
    size_t system_bytes = share_of_machine(&ranks[0], ranks[0].total_bytes);
    return (struct kv_budget){
        .block_bytes = all_block_bytes(ranks, num_ranks),
        .memory_bytes = share_of_process(&ranks[0], config->kv_memory_bytes),
        .free_bytes = rest(memory.free_bytes, memory.planned_bytes),
        .system_bytes =
            rest(system_bytes, memory.weight_bytes + memory.adapter_bytes + memory.draft_bytes),
        .utilization = config->gpu_memory_utilization,
    };
}

/* Weights that are only planned must fit. */
static int check_weights(const struct rank *ranks, int32_t num_ranks, struct error *err) {
    const struct system_memory memory = system_memory_of(ranks, num_ranks);
    if (memory.planned_bytes <= memory.free_bytes)
        return 0;
    size_t without_draft = memory.planned_bytes - memory.draft_bytes;
    if (without_draft <= memory.free_bytes)
        return error_set(err, ERROR_MEMORY,
                         "out of memory for the draft model: %.1f MiB, in addition to %.1f MiB for "
                         "the model, but %.1f MiB of the system's memory are available; serve a "
                         "smaller draft model",
                         mib(memory.draft_bytes), mib(without_draft), mib(memory.free_bytes));
    if (memory.weight_bytes <= memory.free_bytes && memory.adapter_bytes > 0)
        return error_set(err, ERROR_MEMORY,
                         "out of memory for the adapters: %.1f MiB, in addition to %.1f MiB for "
                         "weights and steps, but %.1f MiB of the system's memory are available; "
                         "lower --max-loras or --max-lora-rank",
                         mib(memory.adapter_bytes), mib(without_draft - memory.adapter_bytes),
                         mib(memory.free_bytes));
    return error_set(err, ERROR_MEMORY,
                     "out of memory for the weights: %.1f MiB, and %.1f MiB for steps, but %.1f "
                     "MiB of the system's memory are available; serve a smaller model or one in "
                     "fewer bits, or stop what else runs",
                     mib(memory.weight_bytes),
                     mib(without_draft - memory.weight_bytes - memory.adapter_bytes),
                     mib(memory.free_bytes));
}

/* Chooses as many as every rank has room for. */
static int choose_kv_blocks(const struct rank *ranks, int32_t num_ranks, enum kv_length length,
                            struct serving_limits *limits, struct error *err) {
    if (!ranks[0].backend->has_dedicated_memory) {
        struct kv_budget budget = kv_budget_of_system(ranks, num_ranks);
        budget.length = length;
        if (check_weights(ranks, num_ranks, err) != 0)
            return -1;
        return sizing_choose_blocks(&budget, limits, err);
    }
    int32_t least = INT32_MAX;
    for (int32_t r = 0; r < num_ranks; r++) {
        const struct kv_budget budget = kv_budget_of_device(&ranks[r]);
        if (sizing_choose_blocks(&budget, limits, err) != 0)
            return -1;
        least = min_int32(least, limits->num_blocks);
    }
    limits->num_blocks = least;
    return 0;
}

static struct swap_budget swap_budget_of(const struct rank *ranks, int32_t num_ranks,
                                         size_t kv_bytes) {
    bool is_dedicated = ranks[0].backend->has_dedicated_memory;
    size_t free_bytes = rest(backend_host_free_bytes(), is_dedicated ? 0 : kv_bytes);
    return (struct swap_budget){
        .block_bytes = all_block_bytes(ranks, num_ranks),
        .memory_bytes = share_of_process(&ranks[0], ranks[0].config.swap_bytes),
        .kept_bytes = share_of_process(&ranks[0], ranks[0].config.kept_bytes),
        .free_bytes = share_of_machine(&ranks[0], free_bytes),
        .kv_bytes = kv_bytes,
        .has_dedicated_memory = is_dedicated,
    };
}

int rank_setup_set_length(struct rank *ranks, int32_t num_ranks, int32_t max_model_len,
                          struct error *err) {
    int status = 0;
    for (int32_t r = 0; r < num_ranks && status == 0; r++)
        status = rank_plan_length(&ranks[r], max_model_len, err);
    return status;
}

/* Returns the number of blocks of a GPU that is filled which are left to its libraries, because
 * they take more than is planned. */
static int32_t num_spare(const struct rank *rank, int32_t num_blocks) {
    if (!rank->backend->has_dedicated_memory || rank->config.kv_memory_bytes > 0)
        return 0;
    size_t of_device = rank->total_bytes / 32 / rank_block_bytes(rank);
    return (int32_t)min_size(max_size(of_device, (size_t)num_blocks / 10), (size_t)num_blocks);
}

static bool has_room(struct rank *ranks, int32_t num_ranks, int32_t max_model_len) {
    if (rank_setup_set_length(ranks, num_ranks, max_model_len, NULL) != 0)
        return false;
    struct serving_limits limits = ranks[0].limits;
    if (choose_kv_blocks(ranks, num_ranks, KV_LENGTH_SOUGHT, &limits, NULL) != 0)
        return false;
    return limits.num_blocks - num_spare(&ranks[0], limits.num_blocks) >=
           serving_limits_blocks_for(&limits, max_model_len, limits.max_num_batched_tokens);
}

int rank_setup_choose_length(const struct rank_setup *setup, struct rank *ranks,
                             struct error *err) {
    int32_t most = setup->config->most_model_len, size = setup->config->limits.block_size;
    if (setup->config->limits.max_model_len > 0 || has_room(ranks, setup->num_local, most))
        return 0;
    int32_t fits = 0, exceeds = most / size + (most % size != 0); /* blocks */
    while (exceeds - fits > 1) {
        int32_t middle = fits + (exceeds - fits) / 2;
        if (has_room(ranks, setup->num_local, middle * size))
            fits = middle;
        else
            exceeds = middle;
    }
    int32_t chosen = max_int32(fits * size, min_int32(max_int32(size, 2), most));
    return rank_setup_set_length(ranks, setup->num_local, chosen, err);
}

int rank_setup_choose_blocks(struct rank *ranks, int32_t num_ranks, struct error *err) {
    struct serving_limits limits = ranks[0].limits;
    bool is_kept = ranks[0].config.most_model_len > 0 || ranks[0].weights != NULL;
    enum kv_length length = is_kept ? KV_LENGTH_KEPT : KV_LENGTH_REQUESTED;
    if (choose_kv_blocks(ranks, num_ranks, length, &limits, err) != 0)
        return -1;
    size_t kv_bytes = (size_t)limits.num_blocks * all_block_bytes(ranks, num_ranks);
    const struct swap_budget swap = swap_budget_of(ranks, num_ranks, kv_bytes);
    if (sizing_choose_host_blocks(&swap, &limits, err) != 0)
        return -1;
    rank_setup_set_blocks(ranks, num_ranks, limits.num_blocks, limits.num_host_blocks);
    return 0;
}

void rank_setup_set_blocks(struct rank *ranks, int32_t num_ranks, int32_t num_blocks,
                           int32_t num_host_blocks) {
    for (int32_t r = 0; r < num_ranks; r++) {
        struct executor_memory *memory = &ranks[r].memory;
        size_t block_bytes = rank_block_bytes(&ranks[r]);
        ranks[r].limits.num_blocks = num_blocks;
        ranks[r].limits.num_host_blocks = num_host_blocks;
        memory->kv_bytes = (size_t)num_blocks * block_bytes;
        memory->swap_bytes = (size_t)num_host_blocks * block_bytes;
        size_t taken_bytes = ranks[r].planned_bytes + memory->kv_bytes;
        memory->free_bytes = rest(ranks[r].free_bytes, taken_bytes);
    }
}

/* --- Describing the ranks --- */

static uint32_t add_to_hash(uint32_t hash, const char *text) {
    for (; *text != '\0'; text++)
        hash = (hash ^ (uint8_t)*text) * FNV_PRIME;
    return hash;
}

/* What a rank chose for its share of the products affects the bits, too. */
static void describe_numerics(const char *const *numerics, int32_t num_ranks,
                              struct executor_info *out) {
    bool are_equal = true;
    uint32_t hash = FNV_OFFSET;
    for (int32_t r = 1; r < num_ranks; r++) {
        are_equal = are_equal && strcmp(numerics[0], numerics[r]) == 0;
        hash = add_to_hash(hash, numerics[r]);
    }
    snprintf(out->numerics, sizeof(out->numerics), "%s", numerics[0]);
    size_t used = strlen(out->numerics);
    if (!are_equal)
        snprintf(out->numerics + used, sizeof(out->numerics) - used, ", others %08x",
                 (unsigned)hash);
}

static void add_memory(struct executor_memory *sum, const struct executor_memory *more) {
    sum->weight_bytes += more->weight_bytes;
    sum->adapter_bytes += more->adapter_bytes;
    sum->draft_bytes += more->draft_bytes;
    sum->workspace_bytes += more->workspace_bytes;
    sum->kv_bytes += more->kv_bytes;
    sum->swap_bytes += more->swap_bytes;
    sum->recorded_bytes += more->recorded_bytes;
    sum->overhead_bytes += more->overhead_bytes;
    sum->free_bytes += more->free_bytes;
}

void rank_setup_describe_all(const struct rank_decision *decision, int32_t num_ranks,
                             struct executor_info *info) {
    char first[sizeof(info->description)];
    const char *numerics[BACKEND_MAX_RANKS];
    snprintf(first, sizeof(first), "%s", info->description);
    snprintf(info->description, sizeof(info->description), "%d ranks, the first %.100s", num_ranks,
             first);
    info->num_ranks = num_ranks;
    info->swap_block_ns = decision->swap_block_ns;
    info->memory = (struct executor_memory){0};
    for (int32_t r = 0; r < num_ranks; r++) {
        info->rank_memory[r] = decision->memory[r];
        memcpy(info->rank_places[r], decision->places[r], sizeof(info->rank_places[r]));
        add_memory(&info->memory, &decision->memory[r]);
        numerics[r] = decision->numerics[r];
    }
    describe_numerics(numerics, num_ranks, info);
}

/* The threads may not be divided evenly; then those of the first rank are shown. */
static void describe_backends(const struct rank *ranks, int32_t num_ranks,
                              struct executor_info *out) {
    const char *first = ranks[0].backend->description;
    bool are_equal = true;
    for (int32_t r = 1; r < num_ranks; r++)
        are_equal = are_equal && strcmp(first, ranks[r].backend->description) == 0;
    if (num_ranks == 1)
        snprintf(out->description, sizeof(out->description), "%s", first);
    else
        snprintf(out->description, sizeof(out->description), "%d ranks, %s %.96s", num_ranks,
                 are_equal ? "each" : "the first", first);
}

void rank_setup_describe(const struct rank *ranks, int32_t num_ranks, struct executor_info *out) {
    const struct rank *first = &ranks[0];
    const struct backend *b = first->backend;
    const char *numerics[BACKEND_MAX_RANKS];
    *out = (struct executor_info){
        .limits = first->limits,
        .most_model_len = first->config.most_model_len,
        .kv_was_requested = first->config.kv_memory_bytes > 0,
        .has_dedicated_memory = b->has_dedicated_memory,
        .batch_invariant = !b->has_dedicated_memory || first->config.batch_invariant,
        .activation_dtype = b->activation_dtype,
        .kv_type = first->config.kv_type,
        .lora = first->config.lora,
        .at_hand_bytes = kv_budget_of_system(ranks, num_ranks).free_bytes,
        .num_ranks = num_ranks,
        .num_stages = max_int32(first->config.num_stages, 1),
        .has_mtp = first->config.has_mtp,
        .records_steps = first->records_steps,
        .tuning = first->tuning,
    };
    snprintf(out->device, sizeof(out->device), "%s", b->name);
    snprintf(out->why_cpu, sizeof(out->why_cpu), "%s", first->why_cpu);
    describe_backends(ranks, num_ranks, out);
    for (int32_t r = 0; r < num_ranks; r++) {
        numerics[r] = ranks[r].backend->numerics;
        out->num_recorded = ranks[r].llama != NULL ? llama_num_recorded(ranks[r].llama) : 0;
        out->recording_ns = max_int64(out->recording_ns, ranks[r].recording_ns);
        out->swap_block_ns = max_int64(out->swap_block_ns, ranks[r].swap_block_ns);
        out->rank_memory[r] = ranks[r].memory;
        memcpy(out->rank_places[r], ranks[r].place, sizeof(out->rank_places[r]));
        add_memory(&out->memory, &ranks[r].memory);
        rank_pool_block_bytes(&ranks[r], &out->pool_block_bytes[r * HOST_POOLS_PER_RANK]);
    }
    describe_numerics(numerics, num_ranks, out);
}
