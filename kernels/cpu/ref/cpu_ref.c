/* The oracle backend: every op as its definition reads, one thread, sums in double, weights stored
 * as float for every type of the file. The fast backends are checked against it, so it has no
 * cleverness that could hide an error. */
#include "config/base/check.h"
#include "config/base/checked.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/levels/cpu_levels.h"
#include "kernels/cpu/ref/cpu_ref_private.h"

#include "kernels/cpu/memory/cpu_memory.h"
#include "kernels/matrix_part.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_ALIGNMENT 64

/* The heap, not mmap, so that a sanitizer sees an access past the end. The block's own address is
 * kept just before the aligned data. */
static int buffer_alloc(struct backend *b, size_t bytes, struct buffer *out, struct error *err) {
    size_t total;
    char *block = NULL;
    if (checked_add(bytes, BUFFER_ALIGNMENT + sizeof(void *), &total))
        block = calloc(1, total);
    if (!block)
        return error_set(err, ERROR_MEMORY, "cannot allocate a buffer of %zu bytes", bytes);
    uintptr_t start = (uintptr_t)block + sizeof(void *);
    size_t padding = (BUFFER_ALIGNMENT - start % BUFFER_ALIGNMENT) % BUFFER_ALIGNMENT;
    char *data = block + sizeof(void *) + padding;
    memcpy(data - sizeof(void *), &block, sizeof(void *));
    *out = (struct buffer){.data = data, .bytes = bytes};
    return 0;
}

static void buffer_free(struct backend *b, struct buffer *buffer) {
    if (buffer->data) {
        void *block;
        memcpy(&block, (char *)buffer->data - sizeof(void *), sizeof(void *));
        free(block);
    }
    *buffer = (struct buffer){0};
}

static void destroy(struct backend *b) {
    buffer_free(b, &((struct cpu_ref *)b)->sampled_tokens);
    cpu_rank_finish(&((struct cpu_ref *)b)->rank);
    free(b);
}

static void copy(struct backend *b, void *dst, const void *src, size_t bytes) {
    memcpy(dst, src, bytes);
}

static void memory_info(struct backend *b, size_t *out_free, size_t *out_total) {
    cpu_memory_info("", out_free, out_total);
}

static int wait(struct backend *b, struct error *err) {
    const struct cpu_ref *ref = (const struct cpu_ref *)b;
    return cpu_rank_status(&ref->rank, err) == 0 ? cpu_stage_status(&ref->stage, err) : -1;
}

static void step_end(struct backend *b) {
}

static void matrix_destroy(struct backend *b, struct matrix *matrix) {
    if (matrix)
        free(matrix->parts);
    free(matrix);
}

/* Zeroed; NULL when memory is short. */
static struct matrix *allocate_matrix(size_t num_rows, int32_t cols, int num_parts) {
    struct matrix *matrix = NULL;
    size_t bytes, bias_bytes;
    if (checked_mul(num_rows, (size_t)cols * sizeof(float), &bytes) &&
        checked_mul(num_rows, sizeof(float), &bias_bytes) &&
        checked_add(bytes, bias_bytes, &bytes) && checked_add(bytes, sizeof(*matrix), &bytes))
        matrix = calloc(1, bytes);
    if (!matrix)
        return NULL;
    matrix->rows = (int32_t)num_rows;
    matrix->cols = cols;
    matrix->bias = matrix->data + num_rows * (size_t)cols;
    matrix->num_parts = num_parts;
    matrix->parts = calloc((size_t)num_parts, sizeof(*matrix->parts));
    if (matrix->parts)
        return matrix;
    free(matrix);
    return NULL;
}

static int matrix_fill(struct backend *b, struct matrix *matrix, int32_t first_row,
                       int32_t num_rows, const void *data, struct error *err) {
    enum dtype dtype =
        matrix_part_of_rows(matrix->parts, matrix->num_parts, first_row, num_rows)->dtype;
    size_t cols = (size_t)matrix->cols;
    for (size_t r = 0; r < (size_t)num_rows; r++)
        dtype_to_f32(dtype, (const char *)data + r * dtype_row_bytes(dtype, cols),
                     matrix->data + ((size_t)first_row + r) * cols, cols);
    return 0;
}

static int matrix_create(struct backend *b, const struct matrix_part *parts, int num_parts,
                         int32_t cols, enum matrix_use use, struct matrix **out,
                         struct error *err) {
    size_t num_rows = 0;
    for (int p = 0; p < num_parts; p++) {
        if (matrix_part_check(&parts[p], cols, err))
            return -1;
        num_rows += (size_t)parts[p].rows;
    }
    if (num_rows == 0 || num_rows > INT32_MAX)
        return error_set(err, ERROR_MODEL, "matrix of %zu rows; allowed are 1 to %d", num_rows,
                         INT32_MAX);
    struct matrix *matrix = allocate_matrix(num_rows, cols, num_parts);
    if (!matrix)
        return error_set(err, ERROR_MEMORY, "cannot allocate a matrix of %zu x %d floats", num_rows,
                         cols);
    float *bias = matrix->data + num_rows * (size_t)cols;
    int32_t first_row = 0;
    for (int p = 0; p < num_parts; first_row += parts[p++].rows) {
        matrix->parts[p] = (struct matrix_part){.dtype = parts[p].dtype, .rows = parts[p].rows};
        if (parts[p].bias != NULL)
            memcpy(bias + first_row, parts[p].bias, (size_t)parts[p].rows * sizeof(float));
    }
    first_row = 0;
    for (int p = 0; p < num_parts; first_row += parts[p++].rows)
        if (parts[p].data != NULL)
            matrix_fill(b, matrix, first_row, parts[p].rows, parts[p].data, err);
    *out = matrix;
    return 0;
}

static void step_begin(struct backend *b, const struct step_inputs *inputs) {
    ((struct cpu_ref *)b)->step = *inputs;
}

static void embed(struct backend *b, const struct embed_args *args) {
    const struct cpu_ref *ref = (const struct cpu_ref *)b;
    size_t cols = (size_t)args->table->cols;
    for (int32_t t = 0; t < ref->step.num_tokens; t++) {
        int32_t token = cpu_token_id(&ref->step, &ref->sampled_tokens, t) - args->first_row;
        bool is_here = token >= 0 && token < args->table->rows;
        const float *row = args->table->data + (is_here ? (size_t)token * cols : 0);
        for (size_t i = 0; i < cols; i++)
            ((float *)args->out)[(size_t)t * cols + i] = is_here ? args->scale * row[i] : 0;
    }
}

static void norm_row(const struct norm_args *args, const float *x, float *out) {
    double mean = 0, sum = 0;
    for (int32_t i = 0; args->center && i < args->width; i++)
        mean += (double)x[i] / args->width;
    for (int32_t i = 0; i < args->width; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    double scale = 1 / sqrt(sum / args->width + args->epsilon);
    for (int32_t i = 0; i < args->width; i++)
        out[i] =
            (float)((args->accumulate ? out[i] : 0.0) + (x[i] - mean) * scale * args->weight[i] +
                    (args->bias != NULL ? args->bias[i] : 0.0));
}

/* Rows of more elements than this rank has. */
static void norm_across_ranks(const struct cpu_rank *rank, const struct norm_args *args) {
    double *own = rank->row_sums.data;
    for (int32_t r = 0; r < args->num_rows; r++) {
        const float *x = (const float *)args->x + (size_t)r * (size_t)args->row_stride;
        own[r] = 0;
        for (int32_t i = 0; i < args->width; i++)
            own[r] += (double)x[i] * x[i];
    }
    const double *sums = cpu_group_sum_rows(rank, args->num_rows);
    for (int32_t r = 0; r < args->num_rows; r++) {
        const float *x = (const float *)args->x + (size_t)r * (size_t)args->row_stride;
        float *out = (float *)args->out + (size_t)r * (size_t)args->row_stride;
        double scale = 1 / sqrt(sums[r] / args->total_width + args->epsilon);
        for (int32_t i = 0; i < args->width; i++)
            out[i] = (float)((args->accumulate ? out[i] : 0.0) + x[i] * scale * args->weight[i]);
    }
}

static void norm(struct backend *b, const struct norm_args *args) {
    const struct cpu_rank *rank = &((const struct cpu_ref *)b)->rank;
    if (args->total_width > 0 && rank->group != NULL) {
        norm_across_ranks(rank, args);
        return;
    }
    for (size_t r = 0; r < (size_t)args->num_rows; r++) {
        size_t at = r * (size_t)args->row_stride;
        norm_row(args, (const float *)args->x + at, (float *)args->out + at);
    }
}

static void linear(struct backend *b, const struct linear_args *args) {
    const struct matrix *weight = args->weight;
    size_t rows = (size_t)weight->rows, cols = (size_t)weight->cols;
    for (size_t i = 0; i < (size_t)args->num_rows; i++) {
        const float *x = (const float *)args->x + i * cols;
        float *out = (float *)args->out + i * rows;
        for (size_t r = 0; r < rows; r++) {
            double sum = 0;
            for (size_t c = 0; c < cols; c++)
                sum += (double)x[c] * weight->data[r * cols + c];
            out[r] =
                (float)(args->scale * sum + weight->bias[r] + (args->accumulate ? out[r] : 0.0));
        }
    }
}

/* A NaN stays one. */
static double clamp(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

static double activate_and_multiply(enum activation activation, double gate, double up) {
    switch (activation) {
    case ACTIVATION_SILU:
        return gate / (1 + exp(-gate)) * up;
    case ACTIVATION_GELU_TANH:
        return gate / 2 * (1 + tanh(sqrt(M_2_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
    case ACTIVATION_CLAMPED_SWIGLU:
        gate = clamp(gate, -INFINITY, CLAMPED_SWIGLU_LIMIT);
        up = clamp(up, -CLAMPED_SWIGLU_LIMIT, CLAMPED_SWIGLU_LIMIT);
        return gate / (1 + exp(-(double)CLAMPED_SWIGLU_ALPHA * gate)) * (up + 1);
    }
    CHECK(!"an activation");
}

static void act_mul(struct backend *b, const struct act_mul_args *args) {
    for (int32_t r = 0; r < args->num_rows; r++) {
        const float *gate = (const float *)args->gate_up + (size_t)r * 2 * (size_t)args->width;
        const float *up = gate + args->width;
        float *out = (float *)args->out + (size_t)r * (size_t)args->width;
        for (int32_t i = 0; i < args->width; i++)
            out[i] = (float)activate_and_multiply(args->activation, gate[i], up[i]);
    }
}

static void soft_cap(struct backend *b, const struct soft_cap_args *args) {
    for (size_t i = 0; i < (size_t)args->num_rows * (size_t)args->width; i++)
        args->x[i] = (float)(args->cap * tanh((double)args->x[i] / args->cap));
}

static void gather_rows(struct backend *b, const struct gather_rows_args *args) {
    size_t width = (size_t)args->width;
    for (int32_t r = 0; r < args->num_rows; r++)
        memcpy((float *)args->out + (size_t)r * width,
               (const float *)args->x + (size_t)args->rows[r] * width, width * sizeof(float));
}

static void scatter_rows(struct backend *b, const struct scatter_rows_args *args) {
    size_t width = (size_t)args->width;
    for (int32_t r = 0; r < args->num_rows; r++)
        memcpy((float *)args->out + (size_t)args->rows[r] * width,
               (const float *)args->x + (size_t)r * width, width * sizeof(float));
}

/* In float: the definition says so. */
static void add_rows(struct backend *b, const struct add_rows_args *args) {
    size_t width = (size_t)args->width;
    for (size_t s = 0; s < (size_t)args->num_spans; s++)
        for (size_t r = 0; r < (size_t)args->spans[s].num_rows; r++) {
            const float *row =
                (const float *)args->x + ((size_t)args->spans[s].first_row + r) * width;
            for (size_t i = 0; i < width; i++)
                args->sums[s * width + i] += row[i];
        }
}

static void all_reduce(struct backend *b, const struct all_reduce_args *args) {
    cpu_group_all_reduce(&((struct cpu_ref *)b)->rank, args);
}

static void gather_columns(struct backend *b, const struct gather_columns_args *args) {
    cpu_group_gather_columns(&((struct cpu_ref *)b)->rank, args);
}

static void share_samples(struct backend *b, const struct share_samples_args *args) {
    struct cpu_ref *ref = (struct cpu_ref *)b;
    cpu_group_share_samples(&ref->rank, args, ref->sampled_tokens.data);
}

static void send_rows(struct backend *b, const struct stage_rows_args *args) {
    if (wait(b, NULL) == 0)
        cpu_stage_send(&((struct cpu_ref *)b)->stage, args);
}

static void receive_rows(struct backend *b, const struct stage_rows_args *args) {
    if (wait(b, NULL) == 0)
        cpu_stage_receive(&((struct cpu_ref *)b)->stage, args);
}

static const struct backend_ops ops = {
    .destroy = destroy,
    .buffer_alloc = buffer_alloc,
    .buffer_free = buffer_free,
    .upload = copy,
    .download = copy,
    .host_alloc = buffer_alloc,
    .host_free = buffer_free,
    .host_pin = backend_pins_nothing,
    .host_unpin = backend_unpins_nothing,
    .memory_info = memory_info,
    .synchronize = wait,
    .matrix_bytes = matrix_part_bytes,
    .matrix_create = matrix_create,
    .matrix_fill = matrix_fill,
    .matrix_destroy = matrix_destroy,
    .step_begin = step_begin,
    .embed = embed,
    .norm = norm,
    .linear = linear,
    .rope_store_kv = cpu_ref_rope_store_kv,
    .paged_attention = cpu_ref_paged_attention,
    .act_mul = act_mul,
    .route = cpu_ref_route,
    .choose_adapters = cpu_ref_choose_adapters,
    .linear_experts = cpu_ref_linear_experts,
    .linear_heads = cpu_ref_linear_heads,
    .store_latent = cpu_ref_store_latent,
    .combine_experts = cpu_ref_combine_experts,
    .soft_cap = soft_cap,
    .gather_rows = gather_rows,
    .scatter_rows = scatter_rows,
    .add_rows = add_rows,
    .sample = cpu_ref_sample,
    .all_reduce = all_reduce,
    .gather_columns = gather_columns,
    .share_samples = share_samples,
    .send_rows = send_rows,
    .receive_rows = receive_rows,
    .copy_blocks = cpu_copy_blocks,
    .swap_blocks = cpu_swap_blocks,
    .step_end = step_end,
    .step_wait = wait,
};

struct backend *cpu_ref_open(const struct backend_config *config, struct error *err) {
    struct cpu_ref *ref = calloc(1, sizeof(*ref));
    if (!ref) {
        error_set(err, ERROR_MEMORY, "cannot allocate the cpu-ref backend");
        return NULL;
    }
    ref->base.ops = &ops;
    ref->base.activation_dtype = DTYPE_F32;
    ref->base.head_rows_step = 1;
    ref->base.kv_types = CPU_KV_TYPES;
    ref->base.name = "cpu-ref";
    snprintf(ref->base.numerics, sizeof(ref->base.numerics), "scalar on %s",
             cpu_levels_select(NULL, err)->name);
    snprintf(ref->base.description, sizeof(ref->base.description), "scalar oracle, 1 thread");
    ref->max_sample_rows = serving_limits_max_sample_rows(&config->limits);
    if (cpu_rank_init(&ref->rank, config, NULL, err) != 0 ||
        cpu_stage_init(&ref->stage, config, err) != 0 ||
        buffer_alloc(&ref->base, (size_t)ref->max_sample_rows * sizeof(int32_t),
                     &ref->sampled_tokens, err) != 0) {
        destroy(&ref->base);
        return NULL;
    }
    return &ref->base;
}
