#include "server/memory_table.h"

#include "server/process_memory.h"

#include <stdarg.h>
#include <stdio.h>

#define MAX_LINE 768

struct printer {
    void (*write)(void *context, const char *line);
    void *context;
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

static double mib(size_t bytes) {
    return (double)bytes / (1 << 20);
}

static void put_device(const struct printer *out, const struct worker_info *worker) {
    put(out, "device     %s (%s)%s", worker->device, worker->description,
        worker->is_card && worker->batch_invariant ? ", batch invariant" : "");
    if (worker->why_cpu[0] != '\0')
        put(out, "           not cuda, because %s", worker->why_cpu);
}

/* Of the device: a card's own memory, else the system's. */
static void put_device_parts(const struct printer *out, const struct worker_info *worker,
                             const struct worker_config *config) {
    put(out, "weights    %8.1f MiB", mib(worker->weight_bytes));
    put(out, "workspace  %8.1f MiB for steps of %d tokens, %d sequences",
        mib(worker->workspace_bytes), worker->max_num_batched_tokens, worker->max_num_seqs);
    if (worker->is_card)
        put(out, "overhead   %8.1f MiB driver, libraries, other processes",
            mib(worker->overhead_bytes));
    put(out, "KV cache   %8.1f MiB = %d blocks of %d = %lld tokens in %s", mib(worker->kv_bytes),
        worker->num_blocks, config->block_size, (long long)worker->num_blocks * config->block_size,
        dtype_name(worker->kv_dtype));
    if (worker->is_card)
        put(out, "left free  %8.1f MiB", mib(worker->free_bytes));
}

static void put_swap(const struct printer *out, const struct worker_info *worker) {
    if (worker->swap_block_ns > 0)
        put(out, "swap       %8.1f MiB = %d blocks, %.1f us to move one", mib(worker->swap_bytes),
            worker->num_host_blocks, (double)worker->swap_block_ns / 1e3);
    else
        put(out, "swap       %8.1f MiB = %d blocks", mib(worker->swap_bytes),
            worker->num_host_blocks);
}

static size_t device_bytes(const struct worker_info *worker) {
    return worker->is_card ? 0 : worker->weight_bytes + worker->workspace_bytes + worker->kv_bytes;
}

size_t memory_table_program_bytes(const struct worker_info *worker, bool loaded) {
    size_t resident = process_memory_resident();
    size_t known = worker->is_card ? worker->swap_bytes : worker->weight_bytes;
    if (!loaded)
        return resident;
    return resident > known ? resident - known : 0;
}

size_t memory_table_total(const struct memory_table *table) {
    return device_bytes(table->worker) + table->worker->swap_bytes + table->engine_bytes +
           table->http_bytes + table->program_bytes;
}

void memory_table_write(const struct memory_table *table,
                        void (*write)(void *context, const char *line), void *context) {
    const struct printer out = {write, context};
    put_device(&out, table->worker);
    put_device_parts(&out, table->worker, table->config);
    put_swap(&out, table->worker);
    put(&out, "requests   %8.1f MiB at most, queued and running", mib(table->engine_bytes));
    put(&out, "HTTP       %8.1f MiB at most, %lld connections", mib(table->http_bytes),
        (long long)table->max_connections);
    put(&out, "program    %8.1f MiB with tokenizer and libraries", mib(table->program_bytes));
    put(&out, "total      %8.1f MiB of the system's memory at most",
        mib(memory_table_total(table)));
}
