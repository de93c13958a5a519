/* Runs the project's own engine on the same traces: engine/core/engine_core with its scheduler and
 * block manager, as the server runs them, on an executor that only keeps the time. */
#ifndef QUIRE_SCRIPTS_PAGED_MEMORY_PAGED_H
#define QUIRE_SCRIPTS_PAGED_MEMORY_PAGED_H

#include "engine/request/sampling_params.h"
#include "scripts/paged_memory/memory_account.h"
#include "scripts/paged_memory/trace.h"

#include <stdbool.h>

#define PAGED_MAX_CHOICES 16

struct paged_setup {
    int32_t block_size;
    bool prefix_caching;
    int32_t num_choices; /* n: samples of each request, 1..PAGED_MAX_CHOICES */
    int32_t beam_width;  /* 0: no beam search; ..BEAM_ROW_LOGPROBS, then num_choices is 1 */
};

/* Serves the trace until its duration is over. Every sequence generates exactly its request's
 * output tokens. */
void paged_run(const struct paged_setup *setup, const struct trace *trace,
               struct memory_account *out);

#endif
