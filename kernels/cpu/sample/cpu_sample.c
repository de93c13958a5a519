/* The sample op: rows are dealt to the threads, and each is edited, sampled and reported. */
#include "config/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/memory/cpu_op_scratch.h"
#include "kernels/cpu/levels/cpu_op_kernels.h"
#include "kernels/cpu/sample/cpu_sample_private.h"
#include "kernels/sample_edit.h"
#include "kernels/sample_shape.h"
#include "kernels/sampling.h"

#include <float.h>
#include <math.h>
#include <string.h>

static float known(float logit) {
    return isnan(logit) ? -INFINITY : fminf(logit, FLT_MAX);
}

static float logprob_of(float logit, double log_total) {
    return logit == -INFINITY ? -INFINITY : (float)(logit - log_total);
}

/* Puts a token into the falling list of `size` logits at most `capacity` long, after its equals;
 * returns the new size. */
static int32_t insert_top(struct sample_output *out, float logits[SAMPLE_MAX_LOGPROBS],
                          int32_t size, int32_t capacity, int32_t token, float logit) {
    int32_t i = size < capacity ? size : capacity - 1;
    if (size == capacity && !(logit > logits[i]))
        return size;
    for (; i > 0 && logits[i - 1] < logit; i--) {
        logits[i] = logits[i - 1];
        out->top_tokens[i] = out->top_tokens[i - 1];
    }
    logits[i] = logit;
    out->top_tokens[i] = token;
    return size < capacity ? size + 1 : capacity;
}

static void find_top(const struct cpu_op_kernels *op, const float *logits, int32_t n,
                     double log_total, struct sample_output *out) {
    float top[SAMPLE_MAX_LOGPROBS];
    int32_t capacity = out->num_top, size = 0;
    for (int32_t i = 0; i < capacity; i++)
        size = insert_top(out, top, size, capacity, i, known(logits[i]));
    if (capacity > 0) {
        int32_t i = op->find_above(logits, capacity, n, top[capacity - 1]);
        for (; i < n; i = op->find_above(logits, i + 1, n, top[capacity - 1]))
            insert_top(out, top, size, capacity, i, known(logits[i]));
    }
    for (int32_t i = 0; i < capacity; i++)
        out->top_logprobs[i] = logprob_of(top[i], log_total);
}

/* Ranks the tokens, twice as many as are wanted at a time. After those, only one that is above the
 * last of the best so far can take its place: ids rise. */
static void find_ranked(const struct cpu_op_kernels *op, const float *logits, int32_t n,
                        double log_total, int32_t count, struct top_logprob *found) {
    int32_t size = 0, i = 0;
    bool is_full = false;
    float limit = -INFINITY;
    for (; i < n; i = is_full ? op->find_above(logits, i + 1, n, limit) : i + 1) {
        found[size++] = (struct top_logprob){i, logprob_of(known(logits[i]), log_total)};
        if (size < 2 * count)
            continue;
        top_logprobs_select(found, size, count);
        size = count;
        limit = known(logits[found[count - 1].token]);
        is_full = true;
    }
    top_logprobs_sort(found, size, count);
}

/* Step 1, once the token is known; `logits` are the raw ones, `memory` is for num_ranked. */
static void report(const struct cpu_op_kernels *op, const struct sample_args *args,
                   const struct sample_row *row, const float *logits, void *memory,
                   struct sample_output *out) {
    int32_t n = args->vocab_size;
    struct sample_scale scale = {.max = op->max(logits, n), .temperature = 1};
    double log_total =
        scale.max == -INFINITY ? 0 : scale.max + log(op->sum_weights(logits, n, scale));
    float own = known(logits[out->token]);
    out->logprob = logprob_of(own, log_total);
    out->rank = 1 + op->count_above(logits, n, fmaxf(logits[out->token], -INFINITY));
    out->num_top = row->num_logprobs < n ? row->num_logprobs : n;
    find_top(op, logits, n, log_total, out);
    if (row->num_ranked > 0) {
        find_ranked(op, logits, n, log_total, row->num_ranked, memory);
        memcpy(args->listed_logprobs + row->first_listed_logprob, memory,
               (size_t)row->num_ranked * sizeof(struct top_logprob));
        out->num_top = row->num_ranked;
        return;
    }
    for (int32_t i = 0; i < row->num_listed; i++)
        args->listed_logprobs[row->first_listed_logprob + i] =
            logprob_of(known(logits[args->listed[row->first_listed + i]]), log_total);
}

size_t cpu_sample_worker_bytes(int32_t num_tokens) {
    return (size_t)num_tokens * (2 * sizeof(struct sample_candidate) + sizeof(float)) +
           (size_t)cpu_sample_num_chunks(num_tokens) * sizeof(double);
}

void cpu_sample_bind(struct cpu_sampler *s, int32_t num_tokens, void *memory) {
    s->candidates = memory;
    s->heap = s->candidates + num_tokens;
    s->sums = (double *)(s->heap + num_tokens);
}

/* Returns whether top_n_sigma bans logits in place. */
static bool drops_below_sigma(const struct sample_row *row) {
    return sample_is_shaped(row) && row->settings.top_n_sigma > 0 && row->settings.mirostat == 0;
}

/* Returns the sampled token of a row without a target. `memory` has room for the raw logits after
 * the arrays; *raw points to them if the logits change and are reported. */
static int32_t sample_token(const struct cpu_sample_call *call, const struct sample_row *row,
                            float *logits, void *memory, const float **raw, float *mu) {
    const struct sample_args *args = call->args;
    const struct cpu_op_kernels *op = call->backend->op;
    int32_t n = args->vocab_size;
    bool drops = drops_below_sigma(row);
    struct cpu_sampler s = {
        .op = op, .row = row, .vocab_size = n, .num_tokens = n, .logits = logits};
    cpu_sample_bind(&s, n, memory);
    if (row->num_logprobs >= 0 && (drops || sample_has_edits(row)))
        *raw = memcpy(s.sums + cpu_sample_num_chunks(n), logits, (size_t)n * sizeof(float));
    if (sample_has_edits(row))
        sample_edit_logits(args, row, logits);
    if (drops)
        cpu_sample_drop_below_sigma(&row->settings, logits, n, op->max(logits, n));
    s.scale = (struct sample_scale){op->max(logits, n), sample_first_temperature(&row->settings)};
    return cpu_sample_choose(&s, mu);
}

void cpu_sample_row(const struct cpu_sample_call *call, int64_t r, void *memory) {
    const struct sample_args *args = call->args;
    const struct sample_row *row = &args->rows[r];
    struct sample_output *out = &args->out[r];
    float *logits = args->logits + r * (args->vocab_size + args->padding);
    const float *raw = logits;
    *out = (struct sample_output){.token = row->target};
    if (row->target == SAMPLE_NO_TARGET)
        out->token = sample_token(call, row, logits, memory, &raw, &out->mirostat_mu);
    ((int32_t *)call->backend->sampled_tokens.data)[args->first_row + r] = out->token;
    if (row->num_logprobs >= 0)
        report(call->backend->op, args, row, raw, memory, out);
}

static void sample_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct cpu_sample_call *call = context;
    void *memory = call->backend->op_scratch->workers[worker].data;
    for (int64_t r = begin; r < end; r++)
        cpu_sample_row(call, r, memory);
}

void cpu_sample(struct backend *base, const struct sample_args *args) {
    struct cpu_backend *b = (struct cpu_backend *)base;
    struct cpu_sample_call call = {.backend = b, .args = args};
    CHECK(args->first_row + args->num_sample_rows <=
          serving_limits_max_sample_rows(&b->config.limits));
    CHECK(cpu_op_scratch_reserve_workers(b->op_scratch,
                                         cpu_sample_worker_bytes(args->vocab_size)) == 0);
    thread_pool_for(b->pool, args->num_sample_rows, 1, sample_rows, &call);
}
