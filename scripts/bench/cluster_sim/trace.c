#include "scripts/bench/cluster_sim/trace.h"

#include "config/base/clock.h"
#include "config/base/numbers.h"
#include "scripts/bench/cluster_sim/mix.h"
#include "scripts/bench/cluster_sim/synthetic_tokenizer.h"

#include <math.h>
#include <stdlib.h>

#define CONVERSATION_SALT UINT64_C(0xc0)
#define SYSTEM_SALT UINT64_C(0x5e)

/* --- Draws --- */

/* In [0, 1). */
static double draw_uniform(uint64_t *random) {
    return (double)(mix_next(random) >> 11) * 0x1p-53;
}

static double draw_exponential(uint64_t *random, double mean) {
    return -mean * log(1.0 - draw_uniform(random));
}

static double draw_normal(uint64_t *random) {
    double a = draw_uniform(random), b = draw_uniform(random);
    return sqrt(-2.0 * log(1.0 - a)) * cos(2.0 * 3.14159265358979323846 * b);
}

static int32_t draw_geometric(uint64_t *random, double mean) {
    double u = draw_uniform(random);
    if (mean <= 1.0)
        return 1;
    return 1 + (int32_t)(log(1.0 - u) / log(1.0 - 1.0 / mean));
}

static int32_t draw_length(uint64_t *random, double log_median, double deviation) {
    for (;;) {
        double length = exp(log_median + deviation * draw_normal(random));
        if (length >= TRACE_LEAST_TOKENS && length <= TRACE_MOST_TOKENS)
            return (int32_t)lround(length);
    }
}

/* --- Conversations --- */

static void add_up_shares(double *shares, int32_t count) {
    double sum = 0.0;
    for (int32_t i = 0; i < count; i++)
        shares[i] = sum += 1.0 / (i + 1);
    for (int32_t i = 0; i < count; i++)
        shares[i] /= sum;
}

int trace_init(struct trace *trace, const struct trace_settings *settings, int64_t start_ns) {
    *trace =
        (struct trace){.settings = *settings, .random = mix(settings->seed), .now_ns = start_ns};
    trace->system_share =
        calloc((size_t)settings->num_system_prompts + 1, sizeof(*trace->system_share));
    if (trace->system_share == NULL)
        return -1;
    add_up_shares(trace->system_share, settings->num_system_prompts);
    return 0;
}

void trace_finish(struct trace *trace) {
    free(trace->system_share);
    trace->system_share = NULL;
}

static void draw_system_prompt(const struct trace *trace, struct conversation *conversation) {
    const struct trace_settings *s = &trace->settings;
    double u = draw_uniform(&conversation->random);
    conversation->system_prompt = -1;
    if (s->num_system_prompts == 0)
        return;
    int32_t prompt = 0;
    while (prompt < s->num_system_prompts - 1 && u >= trace->system_share[prompt])
        prompt++;
    uint64_t of_prompt = mix(s->seed ^ mix(SYSTEM_SALT + (uint64_t)prompt));
    double length = s->mean_system_tokens * (0.5 + draw_uniform(&of_prompt));
    conversation->system_prompt = prompt;
    conversation->num_system_tokens = max_int32(1, (int32_t)lround(length));
}

void trace_next_conversation(struct trace *trace, struct conversation *out) {
    const struct trace_settings *s = &trace->settings;
    double gap_s = draw_exponential(&trace->random, 1.0 / s->conversations_per_s);
    trace->now_ns += (int64_t)(gap_s * (double)CLOCK_NS_PER_S);
    uint64_t id = ++trace->num_conversations;
    *out = (struct conversation){.id = id,
                                 .random = mix(s->seed ^ mix(CONVERSATION_SALT + id)),
                                 .arrival_ns = trace->now_ns};
    draw_system_prompt(trace, out);
    out->num_tokens = out->num_system_tokens;
    out->turns_left = draw_geometric(&out->random, s->mean_turns);
}

bool trace_next_turn(const struct trace *trace, struct conversation *conversation,
                     struct turn *out) {
    const struct trace_settings *s = &trace->settings;
    uint64_t *random = &conversation->random;
    bool is_first = conversation->num_tokens == conversation->num_system_tokens;
    double think_s = draw_exponential(random, s->mean_think_s);
    int32_t in = draw_length(random, 4.9396, 1.1), output = draw_length(random, 4.8547, 0.9);
    int32_t prompt = conversation->num_tokens + in;
    if (conversation->turns_left == 0 || prompt + output > s->max_model_len)
        return false;
    *out = (struct turn){.num_prompt_tokens = prompt,
                         .num_output_tokens = output,
                         .think_ns = is_first ? 0 : (int64_t)(think_s * (double)CLOCK_NS_PER_S)};
    conversation->turns_left--;
    conversation->num_tokens = prompt + output;
    return true;
}

/* The number of a text and the place in it name a token: equal ones are equal tokens. */
int32_t conversation_token(const struct conversation *conversation, int32_t position) {
    uint64_t text = position < conversation->num_system_tokens
                        ? mix(SYSTEM_SALT + (uint64_t)conversation->system_prompt)
                        : mix(CONVERSATION_SALT + conversation->id) ^ UINT64_MAX;
    return (int32_t)(mix(text + (uint64_t)position) % SYNTHETIC_VOCAB_SIZE);
}

void conversation_write(const struct conversation *conversation, int32_t count, int32_t *out) {
    for (int32_t i = 0; i < count; i++)
        out[i] = conversation_token(conversation, i);
}
