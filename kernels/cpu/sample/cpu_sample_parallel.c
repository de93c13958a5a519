/* Sampling where each rank has the logits of a part of the vocabulary. Rank 0, which knows the
 * rows, asks for what it needs of each: the largest logit; where all tokens count, what they weigh;
 * then the tokens that may be kept, or the one at a point of the sum. Weights and their sums are
 * exact (cpu_sample_private.h), so the token is the one that the whole row would have given. Rows
 * of other kinds are brought whole.
 *
 * What is asked for is the same on all ranks, and so is how often. */
#include "config/base/check.h"
#include "kernels/backend_group.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/memory/cpu_memory.h"
#include "kernels/cpu/memory/cpu_op_scratch.h"
#include "kernels/cpu/sample/cpu_sample_private.h"
#include "kernels/sample_shape.h"

#include <math.h>
#include <string.h>

#define CANDIDATE_FLOATS ((int32_t)(sizeof(struct sample_candidate) / sizeof(float)))

enum ask {
    ASK_NOTHING,
    ASK_LARGEST, /* the largest logit, and the first token that has it */
    ASK_SUM,     /* of the weights */
    ASK_TOKEN,   /* of one rank: at which the sum exceeds a point */
    ASK_KEPT,    /* tokens that reach a bound */
    ASK_ALL      /* the columns */
};

struct cpu_sample_request {
    enum ask ask;
    int32_t rank;              /* of ASK_TOKEN */
    struct sample_scale scale; /* but for ASK_LARGEST */
    float lowest;              /* bound of ASK_KEPT; with top_k > 0, or the rank's own if higher */
    int32_t top_k;
    double sum, point; /* of ASK_TOKEN: what the ranks before weigh; where */
};

struct cpu_sample_answer {
    double sum;
    float largest;
    int32_t token;
    int32_t num_kept;   /* candidates that are brought; -1: all columns are instead */
    int32_t num_tokens; /* that the rank has */
};

struct parallel_call {
    struct cpu_backend *backend;
    const struct vocab_parallel_sample_args *args;
};

/* --- What a rank answers --- */

static float *share_of(const struct parallel_call *call, int64_t row) {
    return call->args->share + row * call->args->num_tokens;
}

/* Writes the candidates over the row's columns if they fit there. */
static void answer_kept(const struct cpu_sampler *s, const struct cpu_sample_request *request,
                        float *share, struct cpu_sample_answer *answer) {
    float lowest = request->lowest;
    if (request->top_k > 0)
        lowest = fmaxf(lowest, cpu_sample_bound_of_top_k(s, request->top_k));
    int32_t n = cpu_sample_collect(s, lowest);
    size_t bytes = (size_t)n * sizeof(*s->candidates);
    bool is_less = bytes <= (size_t)s->num_tokens * sizeof(float);
    answer->num_kept = is_less ? n : -1;
    if (is_less)
        memcpy(share, s->candidates, bytes);
}

static void answer_row(const struct parallel_call *call, int64_t row, void *memory) {
    const struct cpu_sample_request *request = &call->backend->sample_parallel.requests[row];
    struct cpu_sample_answer *answer = &call->backend->sample_parallel.own[row];
    int32_t num_tokens = call->args->num_tokens;
    float *share = share_of(call, row);
    struct cpu_sampler s = {.op = call->backend->op,
                            .scale = request->scale,
                            .first_token = call->args->first_token,
                            .num_tokens = num_tokens,
                            .logits = share};
    *answer = (struct cpu_sample_answer){.num_tokens = num_tokens};
    cpu_sample_bind(&s, num_tokens, memory);
    switch (request->ask) {
    case ASK_LARGEST:
        answer->largest = s.op->max(share, num_tokens);
        if (answer->largest > -INFINITY)
            answer->token = cpu_sample_first_of(&s, answer->largest);
        break;
    case ASK_SUM:
        answer->sum = cpu_sample_sum(&s);
        break;
    case ASK_TOKEN:
        if (request->rank != call->backend->rank.rank)
            break;
        cpu_sample_sum(&s);
        answer->token = cpu_sample_pick(&s, request->sum, request->point);
        break;
    case ASK_KEPT:
        answer_kept(&s, request, share, answer);
        break;
    case ASK_ALL:
        answer->num_kept = -1;
        break;
    case ASK_NOTHING:
        break;
    }
}

static void answer_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct parallel_call *call = context;
    for (int64_t row = begin; row < end; row++)
        answer_row(call, row, call->backend->op_scratch->workers[worker].data);
}

static bool asks(const struct parallel_call *call, enum ask ask) {
    const struct cpu_sample_request *requests = call->backend->sample_parallel.requests;
    for (int32_t row = 0; row < call->args->num_sample_rows; row++)
        if (requests[row].ask == ask)
            return true;
    return false;
}

/* Answers, and brings the answers to rank 0. */
static void exchange(const struct parallel_call *call) {
    struct cpu_backend *b = call->backend;
    size_t num_rows = (size_t)call->args->num_sample_rows;
    thread_pool_for(b->pool, (int64_t)num_rows, 1, answer_rows, (void *)call);
    cpu_group_gather(&b->rank, b->sample_parallel.own, num_rows * sizeof(*b->sample_parallel.own),
                     b->sample_parallel.answers);
}

static const struct cpu_sample_answer *answer_of(const struct parallel_call *call, int32_t rank,
                                                 int64_t row) {
    return &call->backend->sample_parallel.answers[rank * call->args->num_sample_rows + row];
}

/* Returns how many floats of the row's columns are brought. */
static int32_t length_of(const struct cpu_sample_answer *answer) {
    return answer->num_kept < 0 ? answer->num_tokens : answer->num_kept * CANDIDATE_FLOATS;
}

/* Brings what was kept, or all, to where the row's columns of the rank are on rank 0. */
static void bring(const struct parallel_call *call) {
    struct cpu_backend *b = call->backend;
    const struct vocab_parallel_sample_args *args = call->args;
    int32_t *lengths = b->sample_parallel.lengths, num_rows = args->num_sample_rows;
    bool is_first = b->rank.rank == 0;
    size_t at = 0;
    for (int32_t row = 0; row < num_rows; row++) {
        lengths[row] = length_of(&b->sample_parallel.own[row]);
        memmove(args->share + at, share_of(call, row), (size_t)lengths[row] * sizeof(float));
        at += (size_t)lengths[row];
    }
    for (int32_t r = 1; is_first && r < b->rank.group->num_ranks; r++)
        for (int32_t row = 0; row < num_rows; row++)
            lengths[r * num_rows + row] = length_of(answer_of(call, r, row));
    cpu_group_gather_beginnings(
        &b->rank,
        &(struct gather_columns_args){.x = args->share,
                                      .out = is_first ? args->sample->logits : NULL,
                                      .num_rows = num_rows,
                                      .width = args->num_tokens},
        lengths);
}

/* --- What rank 0 asks for --- */

static const struct sample_row *row_of(const struct parallel_call *call, int64_t row) {
    return &call->args->sample->rows[row];
}

static struct cpu_sampler sampler_of(const struct parallel_call *call, int64_t row) {
    const struct sample_args *args = call->args->sample;
    return (struct cpu_sampler){.op = call->backend->op,
                                .row = &args->rows[row],
                                .scale = call->backend->sample_parallel.requests[row].scale,
                                .vocab_size = args->vocab_size,
                                .num_tokens = args->vocab_size};
}

/* Returns whether more is read of the row, or changed before, than which token it gives. */
static bool needs_all(const struct sample_row *row) {
    return row->num_logprobs >= 0 ||
           (row->target == SAMPLE_NO_TARGET && (sample_has_edits(row) || sample_is_shaped(row)));
}

/* Returns whether the largest logit does not say which token it is. */
static bool is_drawn(const struct parallel_call *call, int64_t row) {
    const struct cpu_sample_request *request = &call->backend->sample_parallel.requests[row];
    const struct sample_row *r = row_of(call, row);
    return r->target == SAMPLE_NO_TARGET && !needs_all(r) && r->settings.temperature > 0 &&
           request->scale.max > -INFINITY;
}

/* The answers say what is largest. */
static void note_largest(const struct parallel_call *call, int64_t index) {
    const struct sample_row *row = row_of(call, index);
    float largest = -INFINITY;
    int32_t token = 0;
    for (int32_t r = 0; r < call->backend->rank.group->num_ranks; r++) {
        const struct cpu_sample_answer *answer = answer_of(call, r, index);
        if (answer->largest > largest) {
            largest = answer->largest;
            token = answer->token;
        }
    }
    call->backend->sample_parallel.requests[index] = (struct cpu_sample_request){
        .ask = ASK_NOTHING, .scale = {largest, row->settings.temperature}};
    call->backend->sample_parallel.tokens[index] =
        row->target != SAMPLE_NO_TARGET ? row->target : token;
}

static bool needs_sum(const struct parallel_call *call, int64_t row) {
    struct cpu_sampler s = sampler_of(call, row);
    return is_drawn(call, row) && cpu_sample_filters(&s) != SAMPLE_BY_BOUND;
}

static double total_of(const struct parallel_call *call, int64_t row) {
    double total = 0;
    for (int32_t r = 0; r < call->backend->rank.group->num_ranks; r++)
        total += answer_of(call, r, row)->sum;
    return total;
}

/* Asks the rank that has the point of the sum, or the last one that weighs anything. */
static void ask_for_token(const struct parallel_call *call, int64_t index) {
    struct cpu_sample_request *request = &call->backend->sample_parallel.requests[index];
    const struct sample_row *row = row_of(call, index);
    double sum = 0;
    request->ask = ASK_TOKEN;
    request->point = sample_uniform(row->seed, row->position) * total_of(call, index);
    for (int32_t r = 0; r < call->backend->rank.group->num_ranks && sum <= request->point; r++) {
        double own = answer_of(call, r, index)->sum;
        if (own > 0) {
            request->rank = r;
            request->sum = sum;
        }
        sum += own;
    }
}

/* The answers say what the tokens of rows weigh for which that is needed. */
static void plan_row(const struct parallel_call *call, int64_t row) {
    struct cpu_sample_request *request = &call->backend->sample_parallel.requests[row];
    struct cpu_sampler s = sampler_of(call, row);
    enum cpu_sample_filters filters = cpu_sample_filters(&s);
    request->ask = needs_all(s.row) ? ASK_ALL : is_drawn(call, row) ? ASK_KEPT : ASK_NOTHING;
    if (request->ask != ASK_KEPT)
        return;
    if (filters == SAMPLE_UNFILTERED) {
        ask_for_token(call, row);
    } else if (filters == SAMPLE_BY_MASS) {
        double total = total_of(call, row);
        call->backend->sample_parallel.totals[row] = total;
        request->lowest = cpu_sample_bound_of_mass(&s, total);
    } else {
        request->top_k = cpu_sample_top_k(&s);
        request->lowest = cpu_sample_bound_of_min_p(&s);
    }
}

static void plan_rows(const struct parallel_call *call) {
    for (int32_t row = 0; row < call->args->num_sample_rows; row++)
        plan_row(call, row);
}

/* Asks for the sums that are needed; where none is, for what comes after. */
static void plan_sums(const struct parallel_call *call) {
    bool any = false;
    for (int32_t row = 0; row < call->args->num_sample_rows; row++) {
        note_largest(call, row);
        if (needs_sum(call, row)) {
            call->backend->sample_parallel.requests[row].ask = ASK_SUM;
            any = true;
        }
    }
    if (!any)
        plan_rows(call);
}

/* --- Tokens --- */

/* Appends what a rank has brought of the row to its candidates. */
static int32_t add_candidates(const struct parallel_call *call, const struct cpu_sampler *s,
                              int32_t rank, int64_t row, int32_t first_token, int32_t n) {
    const struct cpu_sample_answer *answer = answer_of(call, rank, row);
    const float *brought = call->args->sample->logits + row * s->vocab_size + first_token;
    if (answer->num_kept < 0)
        return n + s->op->collect(brought, first_token, answer->num_tokens, s->scale,
                                  call->backend->sample_parallel.requests[row].lowest,
                                  s->candidates + n);
    memcpy(s->candidates + n, brought, (size_t)answer->num_kept * sizeof(*s->candidates));
    return n + answer->num_kept;
}

static int32_t draw_kept(const struct parallel_call *call, int64_t row, void *memory) {
    struct cpu_sampler s = sampler_of(call, row);
    int32_t n = 0, first_token = 0;
    cpu_sample_bind(&s, s.vocab_size, memory);
    for (int32_t r = 0; r < call->backend->rank.group->num_ranks; r++) {
        n = add_candidates(call, &s, r, row, first_token, n);
        first_token += answer_of(call, r, row)->num_tokens;
    }
    n = cpu_sample_filter(&s, n, call->backend->sample_parallel.totals[row]);
    return cpu_sample_draw(&s, n);
}

static void finish_row(const struct parallel_call *call, int64_t row, void *memory) {
    const struct cpu_sample_parallel *p = &call->backend->sample_parallel;
    const struct sample_args *args = call->args->sample;
    const struct cpu_sample_request *request = &p->requests[row];
    int32_t token = p->tokens[row];
    if (request->ask == ASK_ALL) {
        cpu_sample_row(&(struct cpu_sample_call){.backend = call->backend, .args = args}, row,
                       memory);
        return;
    }
    if (request->ask == ASK_TOKEN)
        token = answer_of(call, request->rank, row)->token;
    else if (request->ask == ASK_KEPT)
        token = draw_kept(call, row, memory);
    args->out[row] = (struct sample_output){.token = token};
    ((int32_t *)call->backend->sampled_tokens.data)[args->first_row + row] = token;
}

static void finish_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct parallel_call *call = context;
    for (int64_t row = begin; row < end; row++)
        finish_row(call, row, call->backend->op_scratch->workers[worker].data);
}

/* --- The op --- */

/* Brings what rank 0 asks for to all. */
static void ask(const struct parallel_call *call, void (*plan)(const struct parallel_call *call)) {
    struct cpu_backend *b = call->backend;
    struct cpu_sample_request *requests = b->sample_parallel.requests;
    if (b->rank.rank == 0)
        plan(call);
    cpu_group_broadcast(&b->rank, requests,
                        (size_t)call->args->num_sample_rows * sizeof(*requests));
}

/* Returns false after a failure: nothing that came means anything then. */
static bool run_rounds(const struct parallel_call *call) {
    const struct cpu_rank *rank = &call->backend->rank;
    for (int32_t row = 0; row < call->args->num_sample_rows; row++)
        call->backend->sample_parallel.requests[row].ask = ASK_LARGEST;
    exchange(call);
    if (cpu_rank_status(rank, NULL) != 0)
        return false;
    ask(call, plan_sums);
    if (asks(call, ASK_SUM)) {
        exchange(call);
        if (cpu_rank_status(rank, NULL) != 0)
            return false;
        ask(call, plan_rows);
    }
    bool brings = asks(call, ASK_KEPT) || asks(call, ASK_ALL);
    if (cpu_rank_status(rank, NULL) == 0 && (brings || asks(call, ASK_TOKEN)))
        exchange(call);
    if (cpu_rank_status(rank, NULL) == 0 && brings)
        bring(call);
    return cpu_rank_status(rank, NULL) == 0;
}

void cpu_sample_vocab_parallel(struct backend *base,
                               const struct vocab_parallel_sample_args *args) {
    struct cpu_backend *b = (struct cpu_backend *)base;
    bool samples = b->rank.rank == 0;
    struct parallel_call call = {.backend = b, .args = args};
    int32_t most_tokens = samples ? args->sample->vocab_size : args->num_tokens;
    CHECK(args->num_sample_rows <= b->config.limits.max_logit_rows);
    CHECK(cpu_op_scratch_reserve_workers(b->op_scratch, cpu_sample_worker_bytes(most_tokens)) == 0);
    if (run_rounds(&call) && samples)
        thread_pool_for(b->pool, args->num_sample_rows, 1, finish_rows, &call);
}

int cpu_sample_parallel_init(struct cpu_sample_parallel *out, const struct cpu_rank *rank,
                             const struct serving_limits *limits, struct error *err) {
    *out = (struct cpu_sample_parallel){0};
    if (rank->group == NULL)
        return 0;
    size_t rows = (size_t)limits->max_logit_rows, ranks = (size_t)rank->group->num_ranks;
    size_t row_bytes = sizeof(*out->requests) + (1 + ranks) * sizeof(*out->own) +
                       sizeof(*out->totals) + ranks * sizeof(*out->lengths) + sizeof(*out->tokens);
    if (cpu_memory_alloc(rows * row_bytes, &out->memory, err) != 0)
        return -1;
    out->requests = out->memory.data;
    out->own = (struct cpu_sample_answer *)(out->requests + rows);
    out->answers = out->own + rows;
    out->totals = (double *)(out->answers + ranks * rows);
    out->lengths = (int32_t *)(out->totals + rows);
    out->tokens = out->lengths + ranks * rows;
    return 0;
}

void cpu_sample_parallel_finish(struct cpu_sample_parallel *p) {
    cpu_memory_free(&p->memory);
}
