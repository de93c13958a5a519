/* Quantised weights that stay packed on the device (packed_layout.h): filling and reading them; and
 * the products of our own, with plain ones too. */
#include "kernels/cuda/matrix/cuda_packed_weights.h"

#include "config/base/numbers.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/step/cuda_staging.h"
#include "kernels/thread_pool.h"

#include <string.h>

#define PORTION_ROWS 4
#define SCALES_AT_ONCE 256

/* --- Filling --- */

struct pack_job {
    const struct packed_form *form;
    const uint8_t *data;
    int32_t cols;
    struct packed_planes planes; /* pinned, of the job's rows alone */
};

static void pack_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct pack_job *job = context;
    const size_t row_bytes = dtype_row_bytes(job->form->dtype, (size_t)job->cols);
    for (int64_t row = begin; row < end; row++)
        packed_row_pack(job->form, job->data + (size_t)row * row_bytes, job->cols, &job->planes,
                        (int32_t)row);
}

/* Rows of a plane follow each other on the device as in pinned memory: one copy for each. */
static void send(struct cuda_backend *b, const struct pack_job *job,
                 const struct matrix_segment *segment, int32_t first_row, int32_t num_rows) {
    for (int plane = 0; plane < PACKED_NUM_PLANES; plane++) {
        const size_t row_bytes = packed_row_bytes(job->form, plane, job->cols);
        if (row_bytes > 0)
            CUDA_TRY(b, cudaMemcpyAsync(segment->planes.at[plane] + (size_t)first_row * row_bytes,
                                        job->planes.at[plane], (size_t)num_rows * row_bytes,
                                        cudaMemcpyHostToDevice, b->stream));
    }
}

/* Rows of E4M3, whose blocks begin with their scales. */
static void fill_row_scales(struct cuda_backend *b, struct matrix_segment *segment, int32_t cols,
                            int32_t first_row, int32_t num_rows, const uint8_t *data) {
    const size_t block_bytes = dtype_block_bytes(segment->dtype);
    const size_t row_bytes = dtype_row_bytes(segment->dtype, (size_t)cols);
    float scales[SCALES_AT_ONCE];
    for (int32_t row = 0; row < num_rows && segment->is_by_row; row++, data += row_bytes) {
        float *scale = &scales[row % SCALES_AT_ONCE];
        memcpy(scale, data, sizeof(*scale));
        for (size_t at = 0; at < row_bytes; at += block_bytes)
            segment->is_by_row &= memcmp(data + at, scale, sizeof(*scale)) == 0;
        if (row % SCALES_AT_ONCE == SCALES_AT_ONCE - 1 || row == num_rows - 1)
            cuda_staging_upload(b, segment->row_scales + first_row + row - row % SCALES_AT_ONCE,
                                scales, sizeof(scales[0]) * (size_t)(row % SCALES_AT_ONCE + 1));
    }
}

int cuda_packed_fill(struct cuda_backend *b, struct matrix_segment *segment, int32_t cols,
                     int32_t first_row, int32_t num_rows, const void *data, struct error *err) {
    struct pack_job job = {.form = &packed_forms[segment->form], .data = data, .cols = cols};
    const size_t row_bytes = packed_planes_init(job.form, NULL, 1, cols, &job.planes);
    const int32_t most = (int32_t)(CUDA_STAGING_CHUNK_BYTES / row_bytes);
    if (most == 0)
        return error_set(err, ERROR_MODEL, "%s matrix with rows of %d: too long for a CUDA device",
                         dtype_name(segment->dtype), cols);
    if (segment->row_scales != NULL)
        fill_row_scales(b, segment, cols, first_row, num_rows, data);
    thread_pool_step_begin(b->converters);
    for (int32_t done = 0, n; done < num_rows && CUDA_OK(b); done += n) {
        n = min_int32(num_rows - done, most);
        char *pinned =
            cuda_staging_reserve(b, packed_planes_init(job.form, NULL, n, cols, &job.planes));
        if (pinned == NULL)
            break;
        packed_planes_init(job.form, pinned, n, cols, &job.planes);
        thread_pool_for(b->converters, n, PORTION_ROWS, pack_rows, &job);
        send(b, &job, segment, first_row + done, n);
        job.data += (size_t)n * dtype_row_bytes(segment->dtype, (size_t)cols);
    }
    thread_pool_step_end(b->converters);
    return CUDA_OK(b) ? 0 : error_set(err, b->failure.code, "%s", b->failure.message);
}

/* --- Ops --- */

static cudaError_t launch_product(cudaStream_t stream, const struct gemm_part *part,
                                  const struct packed_product_launch *launch) {
    if (part->segment == NULL)
        return launch_plain_product(stream, launch);
    if (part->x.codes != NULL)
        return launch_packed_fp8(stream, launch);
    const int form = part->segment->form;
    if (form < packed_form_index(DTYPE_Q2_K))
        return launch_packed_32(stream, form, launch);
    if (form < packed_form_index(DTYPE_I4_32))
        return launch_packed_256(stream, form, launch);
    return launch_packed_checkpoint(stream, form, launch);
}

struct packed_planes cuda_part_planes(const struct gemm_part *part) {
    const struct matrix *weight = part->args->weight;
    struct packed_planes planes = {{NULL}};
    if (part->segment == NULL) {
        planes.at[PACKED_LOW] = (uint8_t *)weight->values +
                                (size_t)part->first_row * (size_t)weight->cols * sizeof(uint16_t);
        return planes;
    }
    const size_t row = (size_t)(part->first_row - part->segment->first_row);
    const struct packed_form *form = &packed_forms[part->segment->form];
    for (int plane = 0; plane < PACKED_NUM_PLANES; plane++)
        if (part->segment->planes.at[plane] != NULL)
            planes.at[plane] =
                part->segment->planes.at[plane] + row * packed_row_bytes(form, plane, weight->cols);
    return planes;
}

static struct packed_product_launch launch_of(const struct cuda_backend *b,
                                              const struct gemm_part *part, void *out) {
    const struct linear_args *args = part->args;
    const struct matrix *weight = args->weight;
    return (struct packed_product_launch){
        .planes = cuda_part_planes(part),
        .x = part->x.codes != NULL ? part->x.codes : args->x,
        .x_scales = part->x.scales,
        .bias = weight->float_bias != NULL ? weight->float_bias + part->first_row : NULL,
        .addend = args->accumulate ? gemm_part_out(part, args->out) : NULL,
        .out = out,
        .splits = part->splits,
        .num_rows = args->num_rows,
        .rows = part->num_rows,
        .cols = weight->cols,
        .out_stride = weight->rows,
        .scale = args->scale,
        .float_out = args->float_out,
        .bf16 = cuda_is_bf16(b),
        .begins_early = b->level->begins_early,
    };
}

void cuda_multiply_ours(struct cuda_backend *b, const struct gemm_part *part, void *out) {
    const struct packed_product_launch launch = launch_of(b, part, out);
    CUDA_TRY(b, launch_product(b->stream, part, &launch));
}

void cuda_multiply_gated(struct cuda_backend *b, const struct gemm_part *part,
                         enum activation activation) {
    struct packed_product_launch launch = launch_of(b, part, part->args->out);
    launch.gated = true;
    launch.activation = activation;
    CUDA_TRY(b, launch_product(b->stream, part, &launch));
}

void cuda_quantise(struct cuda_backend *b, const struct gemm_part *part) {
    const struct quantise_launch launch = {.x = part->args->x,
                                           .codes = part->x.codes,
                                           .scales = part->x.scales,
                                           .num_rows = part->args->num_rows,
                                           .cols = part->args->weight->cols,
                                           .bf16 = cuda_is_bf16(b)};
    CUDA_TRY(b, launch_quantise(b->stream, &launch));
}

void cuda_packed_widen(struct cuda_backend *b, const struct gemm_part *part, void *out) {
    const struct packed_embed_launch launch = {
        .planes = cuda_part_planes(part),
        .out = out,
        .table_rows = part->num_rows,
        .num_rows = part->num_rows,
        .num_tokens = part->num_rows,
        .width = part->args->weight->cols,
        .scale = 1,
        .bf16 = cuda_is_bf16(b),
    };
    CUDA_TRY(b, launch_packed_embed(b->stream, part->segment->form, &launch));
}

void cuda_packed_embed(struct cuda_backend *b, const struct embed_args *args) {
    const struct matrix *table = args->table;
    for (int i = 0; i < table->num_segments; i++) {
        const struct matrix_segment *segment = &table->segments[i];
        const struct packed_embed_launch launch = {
            .planes = segment->planes,
            .token_ids = b->step.token_ids,
            .token_rows = b->step.token_rows,
            .sampled_tokens = b->step.sampled_tokens.data,
            .out = args->out,
            .first_row = args->first_row,
            .table_rows = table->rows,
            .segment_row = segment->first_row,
            .num_rows = segment->num_rows,
            .num_tokens = b->step.num_tokens,
            .width = table->cols,
            .scale = args->scale,
            .clears = i == 0,
            .bf16 = cuda_is_bf16(b),
        };
        CUDA_TRY(b, launch_packed_embed(b->stream, segment->form, &launch));
    }
}
