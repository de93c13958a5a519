#include "scripts/paged_memory/trace_executor.h"

#include "scripts/paged_memory/card_model.h"
#include "tests/sim/fake_tokenizer.h"

static struct step_load load_of(const struct step_inputs *inputs) {
    struct step_load load = {.num_sequences = inputs->num_seqs};
    for (int32_t i = 0; i < inputs->num_seqs; i++) {
        int32_t num_tokens = inputs->query_start[i + 1] - inputs->query_start[i];
        load.num_context_tokens += inputs->context_lens[i];
        load.num_prompt_tokens += num_tokens > 1 ? num_tokens : 0;
    }
    return load;
}

/* The finaliser of splitmix64. */
static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static int run(struct executor *executor, const struct batch *batch, struct step_result *result,
               struct error *err) {
    struct trace_executor *trace = (struct trace_executor *)executor;
    struct step_load load = load_of(&batch->inputs);
    double seconds = card_step_seconds(&load);
    for (int32_t i = 0; i < batch->num_rows; i++) {
        const struct sample_row *row = &batch->sample_rows[i];
        uint64_t random = mix(mix(row->seed) + row->position);
        result->rows[i] = (struct sample_output){
            .token = FAKE_FIRST_PLAIN + (int32_t)(random % (FAKE_VOCAB_SIZE - FAKE_FIRST_PLAIN)),
        };
    }
    trace->on_step(trace->context, seconds);
    trace->now_s += seconds;
    return 0;
}

static void destroy(struct executor *executor) {
}

void trace_executor_init(struct trace_executor *executor,
                         void (*on_step)(void *context, double seconds), void *context) {
    static const struct executor_ops ops = {.run = run, .destroy = destroy};
    *executor =
        (struct trace_executor){.base = {.ops = &ops}, .on_step = on_step, .context = context};
}
