/* Makes requests as a server meets them: how long they are and when they come. Seeded; the same on
 * every machine, but for what the last bit of a libm may do to a length.
 *
 * The laws stand for the traces of Kwon et al., "Efficient Memory Management for Large Language
 * Model Serving with PagedAttention" (SOSP 2023, arXiv 2309.06180), section 6.1: lengths of
 * ShareGPT's conversations (means 161.31 and 337.99 tokens) and of Alpaca's instructions (19.31 and
 * 58.45), Poisson arrivals, contexts of at most 2,048 tokens (OPT's). Only the means are published.
 * The spread of ShareGPT's outputs follows from figure 2: of 7 requests with 2,048 slots each, 20.4
 * % of the pool hold tokens and 13.3 % wait for tokens to come, so a running request has 299 tokens
 * to come on average; that is E[x^2] / 2E[x] of the outputs, so with a mean of 338 their standard
 * deviation is 296: a gamma law of shape 1.33. Prompts are lognormal. The others are chosen, not
 * derived. */
#ifndef QUIRE_SCRIPTS_PAGED_MEMORY_TRACE_H
#define QUIRE_SCRIPTS_PAGED_MEMORY_TRACE_H

#include <stdint.h>

#define TRACE_MAX_LENGTH 2048 /* prompt and output */

struct length_law {
    const char *name;
    double prompt_log_mean, prompt_log_deviation; /* lognormal */
    int32_t min_prompt, max_prompt;
    double output_shape, output_mean; /* gamma, shape >= 1 */
    int32_t min_output;
};

const struct length_law *length_law_sharegpt(void);
const struct length_law *length_law_alpaca(void);

struct traced_request {
    double arrival_s;
    int32_t num_prompt_tokens; /* >= 1 */
    int32_t num_output_tokens; /* >= 1; the sum is at most TRACE_MAX_LENGTH */
};

struct trace {
    struct traced_request *requests; /* [num_requests], by arrival */
    int32_t num_requests;
    double duration_s; /* no arrival after that */
};

/* rate: requests per second. Returns -1 when memory is short. */
int trace_init(struct trace *trace, const struct length_law *law, double rate, double duration_s,
               uint64_t seed);
void trace_finish(struct trace *trace); /* accepts a zeroed one */

#endif
