#include "server/memory_table.h"

#include <stdarg.h>
#include <stdio.h>

#define MAX_LINE 768

struct table {
    void (*write)(void *context, const char *line);
    void *context;
};

__attribute__((format(printf, 2, 3))) static void put(const struct table *table, const char *format,
                                                      ...) {
    char line[MAX_LINE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    table->write(table->context, line);
}

static double mib(size_t bytes) {
    return (double)bytes / (1 << 20);
}

static void put_device(const struct table *table, const struct worker_info *worker) {
    put(table, "device     %s (%s)%s", worker->device, worker->description,
        worker->is_card && worker->batch_invariant ? ", batch invariant" : "");
    if (worker->why_cpu[0] != '\0')
        put(table, "           not cuda, because %s", worker->why_cpu);
}

void memory_table_write(const struct worker_info *worker, const struct worker_config *config,
                        void (*write)(void *context, const char *line), void *context) {
    const struct table table = {write, context};
    put_device(&table, worker);
    put(&table, "weights    %8.1f MiB", mib(worker->weight_bytes));
    put(&table, "workspace  %8.1f MiB for steps of %d tokens, %d sequences",
        mib(worker->workspace_bytes), worker->max_num_batched_tokens, worker->max_num_seqs);
    if (worker->is_card)
        put(&table, "overhead   %8.1f MiB driver, libraries, other processes",
            mib(worker->overhead_bytes));
    put(&table, "KV cache   %8.1f MiB = %d blocks of %d = %lld tokens in %s", mib(worker->kv_bytes),
        worker->num_blocks, config->block_size, (long long)worker->num_blocks * config->block_size,
        dtype_name(worker->kv_dtype));
    if (worker->is_card)
        put(&table, "left free  %8.1f MiB", mib(worker->free_bytes));
}
