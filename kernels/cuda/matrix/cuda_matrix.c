/* Weights on the device. A matrix whose parts are all of types with a packed form, and of one
 * type if it is of experts, is held packed (packed_layout.h). Others are converted to rows of
 * activation_dtype: some threads of the host convert a chunk into pinned memory, and the device
 * copies it while they convert the next one; rows have no padding and blocks do not cross them, so
 * a chunk is any run of whole blocks. */
#include "kernels/cuda/matrix/cuda_packed_weights.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/cores.h"
#include "config/base/numbers.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/step/cuda_staging.h"
#include "kernels/cuda/ops/elementwise_launch.h"
#include "kernels/matrix_part.h"
#include "kernels/thread_pool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_ELEMENTS (CUDA_STAGING_CHUNK_BYTES / sizeof(uint16_t))
#define PIECE_ELEMENTS 4096 /* one thread's at a time: a multiple of every type's block */
#define MAX_THREADS 8       /* convert about as fast as one reads a file */
#define ARRAY_ALIGNMENT 256 /* as cudaMalloc */
#define F16_EXPONENT 0x7c00 /* all ones: infinite or not a number */

struct chunk {
    enum dtype from, to;
    const char *src;
    uint16_t *dst; /* pinned */
    size_t num_elements;
    atomic_bool is_too_large; /* some of it, for f16 */
};

int cuda_converters_create(struct cuda_backend *b, struct error *err) {
    int num_threads = b->config.num_threads > 0 ? b->config.num_threads : cores_available();
    b->converters = thread_pool_create(min_int32(num_threads, MAX_THREADS), err);
    return b->converters != NULL ? 0 : -1;
}

static int check_part(const struct matrix_part *part, int32_t cols, struct error *err) {
    if (matrix_part_check(part, cols, err) != 0)
        return -1;
    if (cols % CUDA_MATRIX_COLS_STEP != 0)
        return error_set(err, ERROR_MODEL,
                         "%s matrix with rows of %d: must be a multiple of %d on a CUDA device",
                         dtype_name(part->dtype), cols, CUDA_MATRIX_COLS_STEP);
    return 0;
}

static bool checked_align(size_t bytes, size_t *out) {
    size_t padded;
    if (!checked_add(bytes, ARRAY_ALIGNMENT - 1, &padded))
        return false;
    *out = padded - padded % ARRAY_ALIGNMENT;
    return true;
}

/* Bytes of values or of packed segments and, with biases, of either of them, each padded to the
 * alignment. */
struct matrix_sizes {
    size_t values, bias, float_bias, all;
};

/* Experts are all multiplied by one kernel. */
static bool is_packed(const struct matrix *matrix, enum matrix_use use) {
    for (int i = 0; i < matrix->num_segments; i++)
        if (matrix->segments[i].form < 0)
            return false;
    return use == MATRIX_LINEAR || matrix->num_segments == 1;
}

/* Of scales for each row; 0: the segment has none. */
static size_t row_scales_bytes(const struct cuda_backend *b, const struct matrix_segment *segment) {
    const size_t bytes = (size_t)segment->num_rows * sizeof(float);
    if (!b->scales_fp8_rows || segment->dtype != DTYPE_E4M3_128)
        return 0;
    return (bytes + ARRAY_ALIGNMENT - 1) / ARRAY_ALIGNMENT * ARRAY_ALIGNMENT;
}

static size_t packed_bytes(const struct cuda_backend *b, const struct matrix *matrix) {
    size_t bytes = 0;
    struct packed_planes planes;
    for (int i = 0; i < matrix->num_segments; i++) {
        const struct matrix_segment *segment = &matrix->segments[i];
        bytes += packed_planes_init(&packed_forms[segment->form], NULL, segment->num_rows,
                                    matrix->cols, &planes);
        bytes += row_scales_bytes(b, segment);
    }
    return bytes;
}

static bool plan_sizes(const struct cuda_backend *b, const struct matrix *matrix, bool packed,
                       bool biased, struct matrix_sizes *out) {
    struct matrix_sizes sizes = {0};
    size_t rows = (size_t)matrix->rows;
    if (!checked_mul(sizeof(uint16_t) * (size_t)matrix->cols, rows, &sizes.values) ||
        !checked_align(sizes.values, &sizes.values))
        return false;
    if (packed)
        sizes.values = packed_bytes(b, matrix);
    if (biased && (!checked_align(sizeof(uint16_t) * rows, &sizes.bias) ||
                   !checked_align(sizeof(float) * rows, &sizes.float_bias)))
        return false;
    *out = sizes;
    return checked_add(sizes.values, sizes.bias, &out->all) &&
           checked_add(out->all, sizes.float_bias, &out->all);
}

/* Fills in the rows and segments, for which there is room. */
static int plan(struct matrix *matrix, const struct matrix_part *parts, int num_parts,
                struct error *err) {
    int64_t rows = 0;
    for (int i = 0; i < num_parts; i++) {
        struct matrix_segment *last = i > 0 ? &matrix->segments[matrix->num_segments - 1] : NULL;
        if (check_part(&parts[i], matrix->cols, err) != 0)
            return -1;
        if (rows + parts[i].rows > INT32_MAX)
            return error_set(err, ERROR_MODEL, "%s matrix of %d x %d: too large",
                             dtype_name(parts[i].dtype), parts[i].rows, matrix->cols);
        if (last != NULL && last->dtype == parts[i].dtype)
            last->num_rows += parts[i].rows;
        else
            matrix->segments[matrix->num_segments++] =
                (struct matrix_segment){.dtype = parts[i].dtype,
                                        .first_row = (int32_t)rows,
                                        .num_rows = parts[i].rows,
                                        .form = packed_form_index(parts[i].dtype)};
        rows += parts[i].rows;
    }
    matrix->rows = (int32_t)rows;
    return 0;
}

/* What was finite in the file is so in f16, whose largest number is 65504. */
static bool has_infinity(const uint16_t *halves, size_t n) {
    uint16_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t exponent = halves[i] & F16_EXPONENT;
        largest = exponent > largest ? exponent : largest;
    }
    return largest == F16_EXPONENT;
}

static void convert_piece(struct chunk *chunk, size_t first, size_t n) {
    const char *src = chunk->src + dtype_row_bytes(chunk->from, first);
    uint16_t *dst = chunk->dst + first;
    float values[PIECE_ELEMENTS];
    if (chunk->from == chunk->to) {
        memcpy(dst, src, n * sizeof(*dst));
        return;
    }
    dtype_to_f32(chunk->from, src, values, n);
    dtype_from_f32(chunk->to, values, dst, n);
    if (chunk->to == DTYPE_F16 && has_infinity(dst, n))
        atomic_store_explicit(&chunk->is_too_large, true, memory_order_relaxed);
}

static void convert_pieces(void *context, int64_t begin, int64_t end, int worker) {
    struct chunk *chunk = context;
    for (int64_t i = begin; i < end; i++) {
        size_t first = (size_t)i * PIECE_ELEMENTS;
        convert_piece(chunk, first, min_size(chunk->num_elements - first, PIECE_ELEMENTS));
    }
}

/* Converts it and sends it to the device. */
static int send(struct cuda_backend *b, struct chunk *chunk, void *device_dst, struct error *err) {
    size_t num_pieces = (chunk->num_elements + PIECE_ELEMENTS - 1) / PIECE_ELEMENTS;
    size_t bytes = chunk->num_elements * sizeof(uint16_t);
    chunk->dst = cuda_staging_reserve(b, bytes);
    if (chunk->dst == NULL)
        return error_set(err, b->failure.code, "%s", b->failure.message);
    thread_pool_for(b->converters, (int64_t)num_pieces, 1, convert_pieces, chunk);
    if (chunk->is_too_large)
        return error_set(err, ERROR_MODEL,
                         "a weight of the model does not fit in f16: bf16 is needed");
    CUDA_TRY(b, cudaMemcpyAsync(device_dst, chunk->dst, bytes, cudaMemcpyHostToDevice, b->stream));
    return 0;
}

static int send_all(struct cuda_backend *b, struct chunk *chunk, uint16_t *device_dst, size_t n,
                    struct error *err) {
    for (size_t done = 0; done < n; done += chunk->num_elements) {
        chunk->num_elements = min_size(n - done, CHUNK_ELEMENTS);
        if (send(b, chunk, device_dst + done, err) != 0)
            return -1;
        chunk->src += dtype_row_bytes(chunk->from, chunk->num_elements);
    }
    return CUDA_OK(b) ? 0 : error_set(err, b->failure.code, "%s", b->failure.message);
}

/* n numbers of dtype, as activation_dtype. */
static int convert(struct cuda_backend *b, enum dtype dtype, const void *src, void *device_dst,
                   size_t n, struct error *err) {
    struct chunk chunk = {.from = dtype, .to = b->base.activation_dtype, .src = src};
    thread_pool_step_begin(b->converters);
    int status = send_all(b, &chunk, device_dst, n, err);
    thread_pool_step_end(b->converters);
    return status;
}

int cuda_matrix_fill(struct backend *b, struct matrix *matrix, int32_t first_row, int32_t num_rows,
                     const void *data, struct error *err) {
    struct matrix_segment *segment = matrix->segments;
    CHECK(first_row >= 0 && num_rows > 0 && first_row <= matrix->rows - num_rows);
    while (first_row - segment->first_row >= segment->num_rows)
        segment++;
    CHECK(first_row - segment->first_row <= segment->num_rows - num_rows);
    size_t cols = (size_t)matrix->cols;
    if (matrix->values == NULL)
        return cuda_packed_fill(cuda_state_of(b), segment, matrix->cols,
                                first_row - segment->first_row, num_rows, data, err);
    return convert(cuda_state_of(b), segment->dtype, data,
                   (uint16_t *)matrix->values + (size_t)first_row * cols, (size_t)num_rows * cols,
                   err);
}

static int fill_part(struct cuda_backend *b, struct matrix *matrix, const struct matrix_part *part,
                     int32_t first_row, struct error *err) {
    size_t rows = (size_t)part->rows, first = (size_t)first_row;
    if (part->data != NULL &&
        cuda_matrix_fill(&b->base, matrix, first_row, part->rows, part->data, err) != 0)
        return -1;
    if (part->bias == NULL)
        return 0; /* of a biased matrix: buffer_alloc has zeroed it */
    cuda_staging_upload(b, matrix->float_bias + first, part->bias, rows * sizeof(float));
    return convert(b, DTYPE_F32, part->bias, (uint16_t *)matrix->bias + first, rows, err);
}

static int fill(struct cuda_backend *b, struct matrix *matrix, const struct matrix_part *parts,
                int num_parts, struct error *err) {
    int32_t first_row = 0;
    for (int i = 0; i < num_parts; first_row += parts[i++].rows)
        if (fill_part(b, matrix, &parts[i], first_row, err) != 0)
            return -1;
    return 0;
}

static void place_segments(const struct cuda_backend *b, struct matrix *matrix) {
    char *memory = matrix->memory.data;
    for (int i = 0; i < matrix->num_segments; i++) {
        struct matrix_segment *segment = &matrix->segments[i];
        memory += packed_planes_init(&packed_forms[segment->form], memory, segment->num_rows,
                                     matrix->cols, &segment->planes);
        const size_t bytes = row_scales_bytes(b, segment);
        segment->row_scales = bytes > 0 ? (float *)(void *)memory : NULL;
        segment->is_by_row = bytes > 0;
        memory += bytes;
    }
}

static int allocate(struct cuda_backend *b, struct matrix *matrix, bool packed, bool biased,
                    struct error *err) {
    struct matrix_sizes sizes;
    struct error reason = {0};
    if (!plan_sizes(b, matrix, packed, biased, &sizes))
        return error_set(err, ERROR_MODEL, "matrix of %d x %d: too large", matrix->rows,
                         matrix->cols);
    if (cuda_buffer_alloc(&b->base, sizes.all, &matrix->memory, &reason) != 0)
        return error_set(err, reason.code, "weights of %d x %d in %s: %s", matrix->rows,
                         matrix->cols,
                         dtype_name(packed ? matrix->segments[0].dtype : b->base.activation_dtype),
                         reason.message);
    char *memory = matrix->memory.data;
    if (biased) {
        matrix->bias = memory + sizes.values;
        matrix->float_bias = (float *)(memory + sizes.values + sizes.bias);
    }
    if (packed)
        place_segments(b, matrix);
    else
        matrix->values = memory;
    return 0;
}

static struct matrix *create_planned(const struct matrix_part *parts, int num_parts, int32_t cols,
                                     struct error *err) {
    struct matrix *matrix =
        calloc(1, sizeof(*matrix) + (size_t)num_parts * sizeof(matrix->segments[0]));
    if (matrix == NULL) {
        error_set(err, ERROR_MEMORY, "out of memory for a matrix of %d parts", num_parts);
        return NULL;
    }
    matrix->cols = cols;
    if (plan(matrix, parts, num_parts, err) == 0)
        return matrix;
    free(matrix);
    return NULL;
}

size_t cuda_matrix_bytes(const struct backend *b, const struct matrix_part *parts, int num_parts,
                         int32_t cols, enum matrix_use use) {
    struct matrix_sizes sizes = {0};
    struct matrix *matrix = create_planned(parts, num_parts, cols, NULL);
    if (matrix != NULL &&
        !plan_sizes((const struct cuda_backend *)b, matrix, is_packed(matrix, use),
                    matrix_part_any_biased(parts, num_parts), &sizes))
        sizes.all = SIZE_MAX;
    free(matrix);
    return sizes.all;
}

int cuda_matrix_create(struct backend *base, const struct matrix_part *parts, int num_parts,
                       int32_t cols, enum matrix_use use, struct matrix **out, struct error *err) {
    struct cuda_backend *b = cuda_state_of(base);
    CHECK(num_parts > 0);
    struct matrix *matrix = create_planned(parts, num_parts, cols, err);
    if (matrix == NULL)
        return -1;
    if (allocate(b, matrix, is_packed(matrix, use), matrix_part_any_biased(parts, num_parts),
                 err) != 0 ||
        fill(b, matrix, parts, num_parts, err) != 0) {
        cuda_matrix_destroy(base, matrix);
        return -1;
    }
    *out = matrix;
    return 0;
}

void cuda_matrix_destroy(struct backend *b, struct matrix *matrix) {
    if (matrix == NULL)
        return;
    cuda_buffer_free(b, &matrix->memory);
    free(matrix);
}

void cuda_embed(struct backend *base, const struct embed_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    if (b->step.num_tokens == 0)
        return;
    if (args->table->values == NULL) {
        cuda_packed_embed(b, args);
        return;
    }
    const struct embed_launch launch = {.table = args->table->values,
                                        .token_ids = b->step.token_ids,
                                        .token_rows = b->step.token_rows,
                                        .sampled_tokens = b->step.sampled_tokens.data,
                                        .out = args->out,
                                        .first_row = args->first_row,
                                        .num_rows = args->table->rows,
                                        .num_tokens = b->step.num_tokens,
                                        .width = args->table->cols,
                                        .scale = args->scale,
                                        .bf16 = cuda_is_bf16(b)};
    CUDA_TRY(b, launch_embed(b->stream, &launch));
}
