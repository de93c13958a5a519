/* A mixture of experts, and products per head, which are those of experts that every token takes.
 * Products of a call's choices take the experts one after the other, in chunks of as many packed
 * rows as the workspace holds; all threads share the panels of a chunk's experts. Experts that
 * nobody chose are neither read nor prefetched. A token alone is packed once for all its experts.
 *
 * An expert's rows are multiplied like those of a matrix that has only its segments, so they have
 * the bits of `linear`. The rows of one expert's choices are not next to each other in `out`: the
 * product is told their places. */
#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/ops/cpu_gemm.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define ROUTE_PORTION_SCORES 1024
#define COMBINE_PORTION_FLOATS 8192
#define COMBINE_COLUMNS 64     /* that are summed at a time, in registers */
#define PORTION_PRODUCTS 65536 /* of a few microseconds, at least */

/* --- route --- */

/* Writes the indices of the num_top largest values, the lower of equal ones first. `allowed` NULL:
 * all are. */
static void find_top(const double *values, const bool *allowed, int32_t count, int32_t num_top,
                     int32_t *out) {
    int32_t found = 0;
    for (int32_t i = 0; i < count; i++) {
        if (allowed != NULL && !allowed[i])
            continue;
        int32_t at = found;
        while (at > 0 && values[i] > values[out[at - 1]])
            at--;
        if (at == num_top)
            continue;
        found = min_int32(found + 1, num_top);
        memmove(out + at + 1, out + at, (size_t)(found - 1 - at) * sizeof(*out));
        out[at] = i;
    }
}

/* Allows the experts of the groups that can be chosen from. */
static void allow_groups(const struct route_args *args, const double *values, bool *allowed) {
    const int32_t size = args->num_experts / args->num_groups;
    const int32_t num_top = args->group_score == ROUTE_GROUP_MAX || size == 1 ? 1 : 2;
    double scores[EXPERTS_MAX];
    int32_t top[2], groups[EXPERTS_MAX];
    for (int32_t g = 0; g < args->num_groups; g++) {
        const double *group = values + (ptrdiff_t)g * size;
        find_top(group, NULL, size, num_top, top);
        scores[g] = group[top[0]] + (num_top == 2 ? group[top[1]] : 0);
    }
    find_top(scores, NULL, args->num_groups, args->num_chosen_groups, groups);
    memset(allowed, 0, (size_t)args->num_experts * sizeof(*allowed));
    for (int32_t i = 0; i < args->num_chosen_groups; i++)
        memset(allowed + (ptrdiff_t)groups[i] * size, true, (size_t)size * sizeof(*allowed));
}

/* The scores by which experts are chosen, without the bias. */
static void score_experts(const struct route_args *args, const double *logits, double *scores) {
    const bool is_softmax = args->scoring == ROUTE_SOFTMAX;
    double max = -INFINITY, sum = 0;
    for (int32_t e = 0; is_softmax && e < args->num_experts; e++)
        max = fmax(max, logits[e]);
    for (int32_t e = 0; e < args->num_experts; e++) {
        scores[e] = is_softmax                       ? exp(logits[e] - max)
                    : args->scoring == ROUTE_SIGMOID ? 1 / (1 + exp(-logits[e]))
                                                     : logits[e];
        sum += scores[e];
    }
    for (int32_t e = 0; is_softmax && e < args->num_experts; e++)
        scores[e] /= sum;
}

/* Of one choice, see ROUTE_SPARSEMIXER. Earlier ones are marked. */
static double sparsemixer_weight(const struct route_args *args, const double *logits,
                                 const bool *chosen, int32_t expert) {
    const double max = logits[expert];
    double sum = 0;
    for (int32_t e = 0; e < args->num_experts; e++) {
        double gap = (max - logits[e]) / fmax(fabs(logits[e]), max); /* NaN: both are 0 */
        if (!chosen[e] && !(gap > 2 * (double)args->jitter))
            sum += exp(logits[e] - max);
    }
    return 1 / sum;
}

static void weigh_choices(const struct route_args *args, const double *logits, const double *scores,
                          const int32_t *experts, float *weights) {
    const int32_t k = args->num_chosen;
    bool chosen[EXPERTS_MAX] = {false};
    double sum = 0, total = 0;
    for (int32_t j = 0; args->scoring == ROUTE_SOFTMAX_OF_CHOSEN && j < k; j++)
        total += exp(logits[experts[j]] - logits[experts[0]]);
    for (int32_t j = 0; j < k; j++) {
        const int32_t e = experts[j];
        weights[j] = (float)(args->scoring == ROUTE_SOFTMAX_OF_CHOSEN
                                 ? exp(logits[e] - logits[experts[0]]) / total
                             : args->scoring == ROUTE_SPARSEMIXER
                                 ? sparsemixer_weight(args, logits, chosen, e)
                                 : scores[e]);
        chosen[e] = true;
        sum += weights[j];
    }
    for (int32_t j = 0; j < k; j++)
        weights[j] = (float)(weights[j] / (args->renormalise ? sum + 1e-20 : 1) * args->scale);
}

static void route_token(const struct route_args *args, const float *row, int32_t *experts,
                        float *weights) {
    double logits[EXPERTS_MAX], scores[EXPERTS_MAX], values[EXPERTS_MAX];
    bool allowed[EXPERTS_MAX];
    for (int32_t e = 0; e < args->num_experts; e++)
        logits[e] = fmin(fmax(row[e], -FLT_MAX), FLT_MAX); /* a NaN is the smallest, too */
    score_experts(args, logits, scores);
    for (int32_t e = 0; e < args->num_experts; e++)
        values[e] = scores[e] + (args->bias != NULL ? args->bias[e] : 0);
    if (args->num_groups > 1)
        allow_groups(args, values, allowed);
    find_top(values, args->num_groups > 1 ? allowed : NULL, args->num_experts, args->num_chosen,
             experts);
    weigh_choices(args, logits, scores, experts, weights);
}

static void route_tokens(void *context, int64_t begin, int64_t end, int worker) {
    const struct route_args *args = context;
    for (int64_t t = begin; t < end; t++)
        route_token(args, args->logits + t * args->num_experts,
                    args->choices.experts + t * args->num_chosen,
                    args->choices.weights + t * args->num_chosen);
}

/* Returns the number of the expert among the rank's own; -1: it is not one of them. */
static int32_t own_number(int32_t own_first, int32_t num_own, int32_t expert) {
    return expert >= own_first && expert < own_first + num_own ? expert - own_first : -1;
}

/* Sorts by counting: `first` counts each expert's choices, then is where its next one goes, which
 * in the end is where those of the expert after it begin. */
static void order_choices(const struct expert_choices *c, int32_t num_choices, int32_t own_first,
                          int32_t num_own) {
    memset(c->first, 0, ((size_t)num_own + 1) * sizeof(*c->first));
    for (int32_t i = 0; i < num_choices; i++) {
        int32_t own = own_number(own_first, num_own, c->experts[i]);
        if (own >= 0)
            c->first[own]++;
    }
    int32_t end = 0;
    for (int32_t e = 0; e <= num_own; e++) {
        int32_t count = c->first[e];
        c->first[e] = end;
        end += count;
    }
    for (int32_t i = 0; i < num_choices; i++) {
        int32_t own = own_number(own_first, num_own, c->experts[i]);
        if (own >= 0)
            c->order[c->first[own]++] = i;
    }
    memmove(c->first + 1, c->first, (size_t)num_own * sizeof(*c->first));
    c->first[0] = 0;
}

void cpu_route(struct backend *base, const struct route_args *args) {
    struct cpu_backend *b = (struct cpu_backend *)base;
    CHECK(args->num_experts <= EXPERTS_MAX && args->num_chosen <= EXPERTS_MAX_CHOSEN);
    thread_pool_for(b->pool, args->num_tokens, ROUTE_PORTION_SCORES / args->num_experts + 1,
                    route_tokens, (void *)args);
    order_choices(&args->choices, args->num_tokens * args->num_chosen, args->own_first,
                  args->num_own);
}

void cpu_choose_adapters(struct backend *base, const struct choose_adapters_args *args) {
    const struct step_inputs *step = &((struct cpu_backend *)base)->step;
    for (int32_t seq = 0; seq < step->num_seqs; seq++)
        for (int32_t t = step->query_start[seq]; t < step->query_start[seq + 1]; t++)
            args->choices.experts[t] = step->adapter_slots != NULL ? step->adapter_slots[seq] : -1;
    order_choices(&args->choices, args->num_tokens, 0, args->num_slots);
}

/* --- linear_experts --- */

/* Choices of one expert, all or as many as fit into a chunk. */
struct expert_group {
    int32_t expert; /* among the rank's own */
    int32_t first;  /* index in `order` */
    int32_t num_rows;
    int32_t first_packed; /* row of the workspace */
};

/* Choice i is multiplied from x + i / choices_per_row * x_stride to out + i * out_stride. */
struct experts_job {
    struct cpu_backend *backend;
    const struct matrix *matrix;
    const float *x;
    float *out;
    ptrdiff_t x_stride, out_stride;
    bool accumulate;
    int32_t choices_per_row;
    int32_t num_own, num_tokens;
    const struct expert_choices *choices; /* NULL: every token takes all, in order */
    int32_t num_panels;                   /* of an expert */
    int num_segments;
    uint8_t *packed[GEMM_MAX_PACKINGS];
    size_t row_bytes[GEMM_MAX_PACKINGS]; /* from packed row to packed row */
    int32_t num_groups;
    struct expert_group *groups; /* room for GEMM_CHUNK_ROWS */
};

static int32_t choice_at(const struct experts_job *job, int32_t i) {
    return job->choices != NULL ? job->choices->order[i]
                                : i % job->num_tokens * job->num_own + i / job->num_tokens;
}

/* Where an expert's choices begin in that order; num_own: where they end. */
static int32_t first_choice(const struct experts_job *job, int32_t expert) {
    return job->choices != NULL ? job->choices->first[expert] : expert * job->num_tokens;
}

static uint8_t *packed_of(const struct experts_job *job, const struct expert_group *group,
                          int packing) {
    return job->packed[packing] + (size_t)group->first_packed * job->row_bytes[packing];
}

static void pack_choices(void *context, int64_t begin, int64_t end, int worker) {
    const struct experts_job *job = context;
    const struct matrix *matrix = job->matrix;
    const struct expert_group *group = job->groups;
    const int32_t origin = group->first;
    for (int32_t i = origin + (int32_t)begin; i < origin + end; i++) {
        while (i >= group->first + group->num_rows)
            group++;
        const float *x = job->x + choice_at(job, i) / job->choices_per_row * job->x_stride;
        for (int p = 0; p < matrix->num_packings; p++) {
            cpu_gemm_pack_row(matrix->packings[p], x, matrix->cols, packed_of(job, group, p),
                              group->num_rows, i - group->first);
        }
    }
}

static const struct matrix_segment *segments_of(const struct experts_job *job,
                                                const struct expert_group *group) {
    return job->matrix->segments + (ptrdiff_t)group->expert * job->num_segments;
}

/* Without choices an expert's rows are as far apart in `out` as tokens. */
static struct gemm_product product_of(const struct experts_job *job,
                                      const struct expert_group *group) {
    const struct matrix *matrix = job->matrix;
    const bool is_last = group == job->groups + job->num_groups - 1;
    const int32_t *order = job->choices != NULL ? job->choices->order + group->first : NULL;
    const ptrdiff_t first = order != NULL ? 0 : choice_at(job, group->first);
    struct gemm_product product = {
        .matrix = matrix,
        .segments = segments_of(job, group),
        .num_segments = job->num_segments,
        .following = segments_of(job, is_last ? group : group + 1)->panels,
        .num_rows = group->num_rows,
        .out = job->out + first * job->out_stride,
        .out_stride = (size_t)(order != NULL ? job->out_stride : job->num_own * job->out_stride),
        .out_rows = order,
        .scale = 1,
        .accumulate = job->accumulate};
    for (int p = 0; p < matrix->num_packings; p++)
        product.packed[p] = packed_of(job, group, p);
    return product;
}

/* Panels are counted over the chunk's groups. */
static void multiply_groups(void *context, int64_t begin, int64_t end, int worker) {
    const struct experts_job *job = context;
    while (begin < end) {
        int64_t group = begin / job->num_panels, base = group * job->num_panels;
        int64_t next = min_int64(base + job->num_panels, end);
        struct gemm_product product = product_of(job, &job->groups[group]);
        product.out += cpu_gemm_first_column(&product, (int32_t)(begin - base));
        cpu_gemm_multiply(&product, (int32_t)(begin - base), (int32_t)(next - base));
        begin = next;
    }
}

/* Whole groups, each by one thread from packing on. */
static void run_groups(void *context, int64_t begin, int64_t end, int worker) {
    const struct experts_job *job = context;
    for (int64_t g = begin; g < end; g++) {
        const struct expert_group *group = &job->groups[g];
        const int64_t row = group->first - job->groups->first;
        pack_choices(context, row, row + group->num_rows, worker);
        multiply_groups(context, g * job->num_panels, (g + 1) * job->num_panels, worker);
    }
}

/* Rows that a tile of the smallest size takes, however few it has. */
static int32_t least_tile_rows(const struct matrix *matrix) {
    int32_t least = 1;
    for (int p = 0; p < matrix->num_packings; p++) {
        const int32_t *last = matrix->packings[p]->tile_rows;
        while (last[1] != 0)
            last++;
        least = max_int32(least, *last);
    }
    return least;
}

/* Groups the choices from index *next of `order` on that fit into the workspace; an expert's
 * choices are only divided if they are alone too many. Returns the number of rows to be packed. */
static int32_t plan_groups(struct experts_job *job, int32_t *expert, int32_t *next) {
    const int32_t step = least_tile_rows(job->matrix), begin = *next;
    const bool is_shared = job->num_tokens == 1 && job->choices_per_row > 1;
    int32_t used = 0;
    job->num_groups = 0;
    while (*expert < job->num_own) {
        int32_t left = first_choice(job, *expert + 1) - *next;
        int32_t taken = min_int32(left, GEMM_CHUNK_ROWS);
        int32_t places = (taken + step - 1) / step * step;
        if (used + places > GEMM_CHUNK_ROWS)
            break;
        if (taken > 0)
            job->groups[job->num_groups++] = (struct expert_group){*expert, *next, taken, used};
        used += is_shared ? 0 : places;
        *next += taken;
        if (taken < left)
            break;
        ++*expert;
    }
    return is_shared ? min_int32(job->num_groups, 1) : *next - begin;
}

/* Panels that a thread takes at a time: the small products of an adapter are not worth waking
 * another one. */
static int64_t panels_of_portion(const struct experts_job *job, int32_t num_rows) {
    int64_t of_panel =
        (int64_t)PANEL_COLUMNS * job->matrix->cols * max_int32(1, num_rows / job->num_groups);
    return max_int64(GEMM_PORTION_PANELS, PORTION_PRODUCTS / of_panel);
}

/* Fills in what follows from the matrix. */
static void describe_matrix(struct experts_job *job) {
    const struct matrix *matrix = job->matrix;
    job->num_panels = matrix->num_panels / job->num_own;
    job->num_segments = matrix->num_segments / job->num_own;
    for (int p = 0; p < matrix->num_packings; p++) {
        job->packed[p] = cpu_gemm_packed_rows(job->backend, matrix->packings[p]);
        job->row_bytes[p] = matrix->packings[p]->row_bytes((size_t)matrix->cols);
    }
}

/* Fills in the rest of the job. */
static void run_job(struct experts_job *job) {
    struct cpu_backend *b = job->backend;
    struct expert_group groups[GEMM_CHUNK_ROWS];
    job->groups = groups;
    describe_matrix(job);
    cpu_gemm_expect_next(b, job->matrix, NULL, 0);
    int32_t expert = 0, begin = 0, next = 0, num_rows;
    while ((num_rows = plan_groups(job, &expert, &next)) > 0) {
        const int64_t portion = panels_of_portion(job, next - begin);
        if (portion >= job->num_panels && num_rows == next - begin) {
            thread_pool_for(b->pool, job->num_groups, portion / job->num_panels, run_groups, job);
        } else {
            thread_pool_for(b->pool, num_rows, cpu_gemm_pack_portion(num_rows, job->matrix->cols),
                            pack_choices, job);
            thread_pool_for(b->pool, (int64_t)job->num_groups * job->num_panels, portion,
                            multiply_groups, job);
        }
        begin = next;
    }
}

void cpu_linear_experts(struct backend *base, const struct expert_linear_args *args) {
    struct experts_job job = {
        .backend = (struct cpu_backend *)base,
        .matrix = args->weight,
        .x = args->x,
        .out = args->out,
        .x_stride = args->x_stride > 0 ? args->x_stride : args->weight->cols,
        .out_stride = args->out_stride > 0 ? args->out_stride : args->weight->rows / args->num_own,
        .accumulate = args->accumulate,
        .choices_per_row = args->per_choice ? 1 : args->num_chosen,
        .num_own = args->num_own,
        .num_tokens = args->num_tokens,
        .choices = args->choices};
    run_job(&job);
}

/* --- linear_adapters ---
 * Whole groups, each by one thread from x to out: what lies between two products of a group is
 * nobody else's, so there is one barrier, and a group's few rows stay in the L1 cache. */

#define ADAPTER_ALONE_PRODUCTS (4 * PORTION_PRODUCTS) /* of a group: not worth another barrier */

struct adapters_job {
    struct experts_job products[1 + ADAPTER_MAX_PARTS]; /* A, then every B */
    int num_products;
};

static void run_adapters(void *context, int64_t begin, int64_t end, int worker) {
    const struct adapters_job *job = context;
    for (int64_t g = begin; g < end; g++)
        for (int i = 0; i < job->num_products; i++)
            run_groups((void *)&job->products[i], g, g + 1, worker);
}

/* Whether the largest group, by one thread alone, takes no longer than all of them shared. */
static bool is_alone_fast(const struct adapters_job *job, int num_threads) {
    int64_t of_row = 0, largest = 0, total = 0;
    for (int i = 0; i < job->num_products; i++)
        of_row +=
            (int64_t)job->products[i].num_panels * PANEL_COLUMNS * job->products[i].matrix->cols;
    for (int32_t g = 0; g < job->products[0].num_groups; g++) {
        largest = max_int64(largest, job->products[0].groups[g].num_rows * of_row);
        total += job->products[0].groups[g].num_rows * of_row;
    }
    return largest <= max_int64(ADAPTER_ALONE_PRODUCTS, total / num_threads);
}

/* The products take turns in a group's packed rows, which are as far apart as the longest. */
static void share_rows(struct adapters_job *job) {
    for (int p = 0; p < job->products[0].matrix->num_packings; p++) {
        size_t longest = 0;
        for (int i = 0; i < job->num_products; i++)
            longest =
                job->products[i].row_bytes[p] > longest ? job->products[i].row_bytes[p] : longest;
        for (int i = 0; i < job->num_products; i++)
            job->products[i].row_bytes[p] = longest;
    }
}

static void describe_products(struct adapters_job *job, struct cpu_backend *b,
                              const struct adapter_linear_args *args) {
    const int32_t rank = args->b[0]->cols, inner_width = args->num_parts * rank;
    int32_t out_width = 0, first = 0;
    job->num_products = 1 + args->num_parts;
    for (int32_t p = 0; p < args->num_parts; p++)
        out_width += args->b[p]->rows / args->num_slots;
    for (int i = 0; i < job->num_products; i++) {
        const struct matrix *matrix = i == 0 ? args->a : args->b[i - 1];
        job->products[i] = (struct experts_job){
            .backend = b,
            .matrix = matrix,
            .x = i == 0 ? args->x : (const float *)args->inner + (ptrdiff_t)(i - 1) * rank,
            .out = i == 0 ? args->inner : (float *)args->out + first,
            .x_stride = i == 0 ? matrix->cols : inner_width,
            .out_stride = i == 0 ? inner_width : out_width,
            .accumulate = i > 0,
            .choices_per_row = 1,
            .num_own = args->num_slots,
            .num_tokens = args->num_tokens,
            .choices = args->choices};
        describe_matrix(&job->products[i]);
        first += i == 0 ? 0 : matrix->rows / args->num_slots;
    }
}

bool cpu_linear_adapters(struct backend *base, const struct adapter_linear_args *args) {
    struct cpu_backend *b = (struct cpu_backend *)base;
    struct expert_group groups[GEMM_CHUNK_ROWS];
    struct adapters_job job;
    int32_t slot = 0, next = 0;
    describe_products(&job, b, args);
    job.products[0].groups = groups;
    plan_groups(&job.products[0], &slot, &next);
    if (next < args->choices->first[args->num_slots] ||
        !is_alone_fast(&job, thread_pool_size(b->pool)))
        return false;
    for (int i = 1; i < job.num_products; i++) {
        job.products[i].groups = groups;
        job.products[i].num_groups = job.products[0].num_groups;
    }
    share_rows(&job);
    cpu_gemm_expect_next(b, args->a, NULL, 0);
    thread_pool_for(b->pool, job.products[0].num_groups, 1, run_adapters, &job);
    return true;
}

void cpu_linear_heads(struct backend *base, const struct head_linear_args *args) {
    struct experts_job job = {.backend = (struct cpu_backend *)base,
                              .matrix = args->weight,
                              .x = args->x,
                              .out = args->out,
                              .x_stride = args->x_stride,
                              .out_stride = args->out_stride,
                              .choices_per_row = 1,
                              .num_own = args->num_heads,
                              .num_tokens = args->num_tokens};
    run_job(&job);
}

/* --- combine_experts --- */

/* One token's columns first..first+n-1, n <= COMBINE_COLUMNS. */
static void combine_columns(const struct combine_args *args, int64_t token, int32_t first,
                            int32_t n) {
    const int64_t k = args->num_chosen;
    float sums[COMBINE_COLUMNS] = {0}, *out = (float *)args->out + token * args->width + first;
    for (int64_t c = token * k; c < (token + 1) * k; c++) {
        if (own_number(args->own_first, args->num_own, args->choices->experts[c]) < 0)
            continue;
        const float weight = args->choices->weights[c];
        const float *x = (const float *)args->x + c * args->width + first;
        for (int32_t i = 0; n == COMBINE_COLUMNS && i < COMBINE_COLUMNS; i++)
            sums[i] += weight * x[i];
        for (int32_t i = 0; n < COMBINE_COLUMNS && i < n; i++)
            sums[i] += weight * x[i];
    }
    for (int32_t i = 0; i < n; i++)
        out[i] = args->scale * sums[i] + (args->accumulate ? out[i] : 0);
}

static void combine_tokens(void *context, int64_t begin, int64_t end, int worker) {
    const struct combine_args *args = context;
    for (int64_t t = begin; t < end; t++)
        for (int32_t i = 0; i < args->width; i += COMBINE_COLUMNS)
            combine_columns(args, t, i, min_int32(COMBINE_COLUMNS, args->width - i));
}

void cpu_combine_experts(struct backend *base, const struct combine_args *args) {
    struct cpu_backend *b = (struct cpu_backend *)base;
    int64_t floats = (int64_t)args->num_chosen * args->width;
    thread_pool_for(b->pool, args->num_tokens, COMBINE_PORTION_FLOATS / floats + 1, combine_tokens,
                    (void *)args);
}
