/* A generator of its own, so that a seed means the same everywhere: bits are the hashes of a
 * counter, normal numbers come by the polar method, gamma numbers by Marsaglia and Tsang ("A simple
 * method for generating gamma variables", ACM TOMS 26, 2000). */
#include "scripts/paged_memory/trace.h"

#include "config/base/array.h"
#include "scripts/paged_memory/hash.h"

#include <math.h>
#include <stdlib.h>

const struct length_law *length_law_sharegpt(void) {
    static const struct length_law law = {.name = "ShareGPT",
                                          .prompt_log_mean = 4.35,
                                          .prompt_log_deviation = 1.38,
                                          .min_prompt = 4,
                                          .max_prompt = 1024,
                                          .output_shape = 1.33,
                                          .output_mean = 338,
                                          .min_output = 4};
    return &law;
}

const struct length_law *length_law_alpaca(void) {
    static const struct length_law law = {.name = "Alpaca",
                                          .prompt_log_mean = 2.88,
                                          .prompt_log_deviation = 0.45,
                                          .min_prompt = 3,
                                          .max_prompt = 1024,
                                          .output_shape = 1.1,
                                          .output_mean = 58.5,
                                          .min_output = 1};
    return &law;
}

static uint64_t draw_bits(uint64_t *state) {
    return hash_mix((*state)++);
}

/* In (0, 1). */
static double draw_uniform(uint64_t *state) {
    return ((double)(draw_bits(state) >> 12) + 0.5) * 0x1p-52;
}

static double draw_normal(uint64_t *state) {
    for (;;) {
        double x = 2 * draw_uniform(state) - 1, y = 2 * draw_uniform(state) - 1;
        double square = x * x + y * y;
        if (square > 0 && square < 1)
            return x * sqrt(-2 * log(square) / square);
    }
}

static double draw_gamma(uint64_t *state, double shape, double mean) {
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = draw_normal(state), v = 1 + c * x;
        v = v * v * v;
        if (v > 0 && log(draw_uniform(state)) < x * x / 2 + d - d * v + d * log(v))
            return d * v * mean / shape;
    }
}

static int32_t clamp(double length, int32_t low, int32_t high) {
    return length < low ? low : length > high ? high : (int32_t)length;
}

static struct traced_request draw_request(const struct length_law *law, uint64_t *state) {
    struct traced_request request;
    double prompt = exp(law->prompt_log_mean + law->prompt_log_deviation * draw_normal(state));
    request.num_prompt_tokens = clamp(prompt, law->min_prompt, law->max_prompt);
    request.num_output_tokens =
        clamp(draw_gamma(state, law->output_shape, law->output_mean), law->min_output,
              TRACE_MAX_LENGTH - request.num_prompt_tokens);
    return request;
}

int trace_init(struct trace *trace, const struct length_law *law, double rate, double duration_s,
               uint64_t seed) {
    size_t capacity = 0;
    double arrival_s = 0;
    uint64_t state = hash_mix(seed); /* seeds next to each other are far apart */
    *trace = (struct trace){.duration_s = duration_s};
    while ((arrival_s -= log(draw_uniform(&state)) / rate) <= duration_s) {
        if (!array_reserve(&trace->requests, &capacity, (size_t)trace->num_requests + 1,
                           sizeof(*trace->requests))) {
            trace_finish(trace);
            return -1;
        }
        struct traced_request request = draw_request(law, &state);
        request.arrival_s = arrival_s;
        trace->requests[trace->num_requests++] = request;
    }
    return 0;
}

void trace_finish(struct trace *trace) {
    free(trace->requests);
    *trace = (struct trace){0};
}
