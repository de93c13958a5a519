#include "server/program/rank_plan.h"

#include "config/base/numbers.h"

#include <stdio.h>

#define MAX_LINE 256

/* All but the KV cache. The first has the front end as well, the program each. */
static size_t fixed_bytes(const struct memory_table *table, int32_t rank) {
    const struct executor_memory *memory = &table->executor->rank_memory[rank];
    size_t bytes =
        memory->weight_bytes + memory->workspace_bytes + memory->swap_bytes + table->program_bytes;
    return rank == 0 ? bytes + table->engine_bytes + table->http_bytes + table->response_bytes
                     : bytes;
}

static int64_t num_tokens(const struct executor_info *info) {
    return (int64_t)info->limits.num_blocks * info->limits.block_size;
}

static int64_t token_bytes(const struct executor_info *info, int32_t rank) {
    return (int64_t)info->rank_memory[rank].kv_bytes / num_tokens(info);
}

static void describe_rank(const struct memory_table *table, int32_t rank, char *line) {
    const struct executor_info *info = table->executor;
    size_t fixed = fixed_bytes(table, rank);
    snprintf(line, MAX_LINE,
             "  rank %d   %8.1f MiB and %lld bytes of KV cache for a token: %.1f MiB for %lld",
             rank, mib(fixed), (long long)token_bytes(info, rank),
             mib(fixed + info->rank_memory[rank].kv_bytes), (long long)num_tokens(info));
}

/* All have as many blocks as the one with the least room. */
static void describe_room(const struct memory_table *table, size_t machine_bytes, char *line) {
    const struct executor_info *info = table->executor;
    int64_t least = INT64_MAX;
    int32_t smallest = 0;
    for (int32_t r = 0; r < info->num_ranks; r++) {
        size_t fixed = fixed_bytes(table, r), left = machine_bytes - min_size(fixed, machine_bytes);
        int64_t room = (int64_t)left / token_bytes(info, r);
        smallest = room < least ? r : smallest;
        least = min_int64(room, least);
    }
    snprintf(line, MAX_LINE,
             "           machines of %.1f MiB hold %lld tokens, by the room of rank %d",
             mib(machine_bytes), (long long)(least - least % info->limits.block_size), smallest);
}

void rank_plan_write(const struct rank_plan *plan, void (*write)(void *context, const char *line),
                     void *context) {
    const struct memory_table *table = plan->table;
    const struct executor_info *info = table->executor;
    char line[MAX_LINE];
    write(context,
          "ranks      as processes on a machine each, with the program; rank 0 with requests "
          "and HTTP");
    for (int32_t r = 0; r < info->num_ranks; r++) {
        describe_rank(table, r, line);
        write(context, line);
    }
    describe_room(table, table->program_bytes + info->at_hand_bytes, line);
    write(context, line);
    for (int32_t r = 0; r < info->num_ranks; r++) {
        snprintf(line, sizeof(line),
                 "  rank %d   sends %lld bytes for a token, %lld for one sampled", r,
                 (long long)plan->traffic[r].token_bytes,
                 (long long)(plan->traffic[r].token_bytes + plan->traffic[r].row_bytes));
        write(context, line);
    }
}
