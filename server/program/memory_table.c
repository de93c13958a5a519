#include "server/program/memory_table.h"

#include "config/base/numbers.h"
#include "kernels/kv_type.h"
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define MAX_LINE 768
/* Of the program on the CPU, a little more than was measured with vocabularies of 49,152, 151,936
 * and 262,144 tokens. */
#define PROCESS_BYTES ((size_t)24 << 20)
#define RANK_BYTES ((size_t)16 << 20) /* of each but the first */
#define VOCABULARY_BYTES 384          /* of a token: in the tokenizer, and prepared for grammars */

struct printer {
    void (*write)(void *context, const char *line);
    void *context;
    bool is_brief;
};

__attribute__((format(printf, 2, 3))) static void put(const struct printer *out, const char *format,
                                                      ...) {
    char line[MAX_LINE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    out->write(out->context, line);
}

static void put_device(const struct printer *out, const struct executor_info *info) {
    put(out, "device     %s (%s)%s", info->device, info->description,
        info->has_dedicated_memory && info->batch_invariant ? ", batch invariant" : "");
    if (info->why_cpu[0] != '\0')
        put(out, "           not cuda, because %s", info->why_cpu);
}

static void put_tuning(const struct printer *out, const struct executor_info *info) {
    const struct tuning_report *tuning = &info->tuning;
    if (tuning->num_timed + tuning->num_left > 0)
        put(out,
            "products   %d timed in %.1f s, %d untimed; %d not by the library's first algorithm",
            tuning->num_timed, tuning->seconds, tuning->num_left, tuning->num_changed);
}

/* The longest sequence, why it is not the model's longest, and what changes it. */
static void put_context(const struct printer *out, const struct executor_info *info) {
    const struct serving_limits *limits = &info->limits;
    double block = mib(info->memory.kv_bytes) / (double)max_int32(limits->num_blocks, 1);
    int64_t needed =
        serving_limits_blocks_for(limits, info->most_model_len, limits->max_num_batched_tokens);
    bool is_gpu = info->has_dedicated_memory;
    if (info->most_model_len == 0)
        put(out, "context    %d tokens, by --max-model-len", limits->max_model_len);
    else if (limits->max_model_len == info->most_model_len)
        put(out, "context    %d tokens, the model's longest; --max-model-len sets another",
            limits->max_model_len);
    else
        put(out,
            "context    %d tokens fit %s; the model's %d need %.1f MiB of KV cache: see %s, "
            "--max-model-len%s",
            limits->max_model_len,
            info->kv_was_requested ? "--kv-cache-memory-bytes"
            : is_gpu               ? "the GPU"
                                   : "half of the available memory",
            info->most_model_len, block * (double)needed,
            is_gpu && !info->kv_was_requested ? "--gpu-memory-utilization"
                                              : "--kv-cache-memory-bytes",
            kv_type_has_scales(info->kv_type) ? "" : ", --kv-cache-dtype int8");
}

/* Parts in the device's memory: a GPU's own, else the system's. */
static void put_device_parts(const struct printer *out, const struct executor_info *info) {
    put(out, "weights    %8.1f MiB", mib(info->memory.weight_bytes));
    if (info->lora.num_slots > 0)
        put(out, "adapters   %8.1f MiB = %d slots of rank %d in %s",
            mib(info->memory.adapter_bytes), info->lora.num_slots, info->lora.max_rank,
            dtype_name(info->lora.dtype));
    if (info->memory.draft_bytes > 0)
        put(out, "draft      %8.1f MiB of the draft model", mib(info->memory.draft_bytes));
    if (!out->is_brief)
        put(out, "workspace  %8.1f MiB for steps of %d tokens, %d sequences",
            mib(info->memory.workspace_bytes), info->limits.max_num_batched_tokens,
            info->limits.max_num_seqs);
    if (info->num_recorded > 0)
        put(out, "recorded   %8.1f MiB for decode steps of %d sizes, in %.1f s",
            mib(info->memory.recorded_bytes), info->num_recorded, (double)info->recording_ns / 1e9);
    else if (info->records_steps)
        put(out, "recorded   decode steps take of the KV cache what is measured at start");
    if (info->has_dedicated_memory)
        put(out, "overhead   %8.1f MiB driver, libraries, other processes",
            mib(info->memory.overhead_bytes));
    const struct serving_limits *limits = &info->limits;
    long long num_tokens = serving_limits_tokens_in(limits, limits->num_blocks);
    put(out, "KV cache   %8.1f MiB = %d blocks of %d = %lld tokens in %s, %lld bytes each",
        mib(info->memory.kv_bytes), info->limits.num_blocks, info->limits.block_size, num_tokens,
        kv_type_name(info->kv_type),
        num_tokens > 0 ? (long long)info->memory.kv_bytes / num_tokens : 0);
    if (limits->num_full_groups > 0)
        put(out,
            "           %d of %d groups of layers keep %d tokens of a sequence, and what a step "
            "computes",
            limits->num_groups - limits->num_full_groups, limits->num_groups, limits->window);
    put_context(out, info);
    if (info->has_dedicated_memory)
        put(out, "left free  %8.1f MiB", mib(info->memory.free_bytes));
}

/* With several, each next to its node's memory. */
static void put_ranks(const struct printer *out, const struct executor_info *info) {
    for (int32_t r = 0; info->num_ranks > 1 && r < info->num_ranks; r++) {
        const struct executor_memory *memory = &info->rank_memory[r];
        char adapters[32] = "";
        if (info->lora.num_slots > 0)
            snprintf(adapters, sizeof(adapters), " adapters %.1f,", mib(memory->adapter_bytes));
        put(out,
            "  rank %d   %8.1f MiB: weights %.1f,%s workspace %.1f, KV cache %.1f, swap %.1f; %s",
            r,
            mib(memory->weight_bytes + memory->adapter_bytes + memory->workspace_bytes +
                memory->kv_bytes + memory->swap_bytes),
            mib(memory->weight_bytes), adapters, mib(memory->workspace_bytes),
            mib(memory->kv_bytes), mib(memory->swap_bytes), info->rank_places[r]);
    }
}

static void put_swap(const struct printer *out, const struct executor_info *info) {
    if (info->swap_block_ns > 0)
        put(out, "swap       %8.1f MiB = %d blocks, %.1f us to move one",
            mib(info->memory.swap_bytes), info->limits.num_host_blocks,
            (double)info->swap_block_ns / 1e3);
    else
        put(out, "swap       %8.1f MiB = %d blocks", mib(info->memory.swap_bytes),
            info->limits.num_host_blocks);
}

static size_t device_bytes(const struct executor_info *info) {
    return info->has_dedicated_memory
               ? 0
               : info->memory.weight_bytes + info->memory.adapter_bytes + info->memory.draft_bytes +
                     info->memory.workspace_bytes + info->memory.kv_bytes;
}

/* The second number of statm: resident pages. */
static size_t read_resident(const char *path) {
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    size_t pages = 0;
    if (fscanf(file, "%*s %zu", &pages) != 1)
        pages = 0;
    fclose(file);
    long page_bytes = sysconf(_SC_PAGESIZE);
    return page_bytes > 0 ? pages * (size_t)page_bytes : 0;
}

size_t memory_table_resident(void) {
    return read_resident("/proc/self/statm");
}

static size_t resident_ranks(const struct executor_info *info) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%lld/statm", (long long)info->rank_process);
    return info->rank_process > 0 ? read_resident(path) : 0;
}

static size_t planned_program_bytes(const struct executor_info *info, int num_processes) {
    size_t processes = (size_t)num_processes * PROCESS_BYTES;
    size_t ranks = (size_t)max_int32(info->num_ranks - 1, 0) * RANK_BYTES;
    return processes + ranks + (size_t)info->limits.vocab_size * VOCABULARY_BYTES;
}

size_t memory_table_program_bytes(const struct executor_info *info, int num_processes,
                                  bool loaded) {
    if (!info->has_dedicated_memory)
        return planned_program_bytes(info, num_processes);
    size_t resident = memory_table_resident() + resident_ranks(info);
    if (!loaded)
        return (size_t)num_processes * resident;
    return resident - min_size(info->memory.swap_bytes, resident);
}

size_t memory_table_rank_bytes(const struct executor_info *info) {
    size_t ranks = (size_t)max_int32(info->num_ranks - 1, 0) * RANK_BYTES;
    return device_bytes(info) + info->memory.swap_bytes + PROCESS_BYTES + ranks;
}

size_t memory_table_vocabulary_bytes(const struct executor_info *info) {
    return (size_t)info->limits.vocab_size * VOCABULARY_BYTES;
}

size_t memory_table_total(const struct memory_table *table) {
    return device_bytes(table->executor) + table->executor->memory.swap_bytes +
           table->engine_bytes + table->http_bytes + table->response_bytes + table->program_bytes;
}

void memory_table_write(const struct memory_table *table,
                        void (*write)(void *context, const char *line), void *context) {
    const struct printer out = {write, context, table->is_brief};
    put_device(&out, table->executor);
    put_tuning(&out, table->executor);
    put_device_parts(&out, table->executor);
    if (table->is_brief)
        return;
    put_swap(&out, table->executor);
    put_ranks(&out, table->executor);
    put(&out, "requests   %8.1f MiB at most, queued and running", mib(table->engine_bytes));
    put(&out, "HTTP       %8.1f MiB at most, %lld connections", mib(table->http_bytes),
        (long long)table->max_connections);
    if (table->response_bytes > 0)
        put(&out, "responses  %8.1f MiB at most, kept to be fetched and continued",
            mib(table->response_bytes));
    put(&out, "program    %8.1f MiB with tokenizer and libraries", mib(table->program_bytes));
    put(&out, "total      %8.1f MiB of the system's memory at most",
        mib(memory_table_total(table)));
}
