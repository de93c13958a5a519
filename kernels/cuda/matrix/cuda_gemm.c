/* Which of cuBLASLt's algorithms a product of a step takes (cuda_product.h: what a product is).
 *
 * The heuristic is asked once per power of two and one and a half powers of two of M, the number of
 * rows, at the upper end; the first algorithm it names, or at start the fastest (cuda_tuning.h), is
 * kept with the shape and serves all M of the bucket, M itself being passed as it is. The library
 * may refuse an algorithm for an M it did not name it for. Then what it names for that M is tried
 * in turn, and the first that is taken is remembered for that M alone: the bucket keeps its own, so
 * that two M that refuse each other's never ask again.
 *
 * Our own product (packed_product.cuh) is among the candidates where reading the weights is what
 * counts; of packed weights always, where cuBLASLt's multiply with a copy that is widened first, a
 * part of the matrix at a time. What is expected to be fastest is first, and taken if nothing is
 * timed. Its sums have one order for every M, so batch invariance is to use no other.
 *
 * With fp8_activations weights of E4M3 are multiplied with codes of x, which are written first: of
 * as many rows at a time as there is room for. By our own product, or for many rows cuBLASLt's
 * where it can scale the result: rows of weights have one scale each, on compute capability 9.0. */
#include "kernels/cuda/matrix/cuda_packed_weights.h"

#include "config/base/numbers.h"
#include "kernels/cuda/matrix/cublas_check.h"
#include "kernels/cuda/matrix/cuda_product.h"
#include "kernels/cuda/matrix/cuda_tuning.h"

#include <stdlib.h>

#define NUM_KINDS 4    /* accumulate or not, float_out or not */
#define NUM_BUCKETS 61 /* of M: 1, 2, 3, 4, 6, 8, 12, ... up to 2^30 */
#define NUM_CANDIDATES 32
#define OUR_ROWS 64      /* up to which reading the weights is what counts */
#define WIDENED_ROWS 128 /* up to which widening packed weights takes longer than it gains */
#define MAX_WIDENED_BYTES ((size_t)32 << 20) /* of a part; half of the L2 cache, where it stays */
#define QUANTISED_BYTES ((size_t)16 << 20)   /* of activations: 1170 rows of 14336 */

/* Another algorithm for one M, which refused its bucket's. */
struct exception {
    int32_t num_rows;
    cublasLtMatmulAlgo_t algorithm;
};

/* At most one exception for each M of a bucket. */
struct choice {
    bool made;
    struct cuda_algorithm algorithm;
    struct exception *exceptions;
    int32_t num_exceptions, max_exceptions;
};

/* The algorithms chosen for parts of a shape, filled in as they are first needed. */
struct gemm_shape {
    struct gemm_shape *next;
    int32_t rows, cols, out_stride;
    int form; /* form_number */
    bool biased;
    struct choice choices[NUM_KINDS][NUM_BUCKETS];
};

struct cuda_gemm {
    struct buffer splits;    /* sums, then counts */
    struct buffer quantised; /* codes of x, then scales; empty without fp8_activations */
    struct buffer widened;   /* empty when batch_invariant */
    cublasLtHandle_t handle; /* NULL when batch_invariant */
    struct buffer workspace; /* empty when batch_invariant */
    struct gemm_shape *shapes;
};

/* Tiles that are split are fewer than half of the multiprocessors. */
static int32_t max_split_tiles(const struct cuda_backend *b) {
    return b->num_multiprocessors / 2;
}

static int create_splits(struct cuda_backend *b, struct error *err) {
    const size_t tiles = (size_t)max_split_tiles(b), sums_bytes = tiles * PACKED_SPLIT_TILE_BYTES;
    if (cuda_buffer_alloc(&b->base, sums_bytes + tiles * sizeof(int32_t), &b->gemm->splits, err) !=
        0)
        return -1;
    return CUDA_START(
        cudaMemset((char *)b->gemm->splits.data + sums_bytes, 0, tiles * sizeof(int32_t)), err);
}

static int create_widened(struct cuda_backend *b, struct error *err) {
    int cache_bytes = 0;
    if (CUDA_START(cudaDeviceGetAttribute(&cache_bytes, cudaDevAttrL2CacheSize, b->device), err) !=
        0)
        return -1;
    return cuda_buffer_alloc(&b->base, min_size((size_t)cache_bytes / 2, MAX_WIDENED_BYTES),
                             &b->gemm->widened, err);
}

static struct packed_splits splits_of(const struct cuda_backend *b) {
    const int32_t tiles = max_split_tiles(b);
    char *sums = b->gemm->splits.data;
    return (struct packed_splits){.sums = (float *)sums,
                                  .counts =
                                      (int32_t *)(sums + (size_t)tiles * PACKED_SPLIT_TILE_BYTES),
                                  .max_tiles = tiles};
}

int cuda_gemm_create(struct cuda_backend *b, struct error *err) {
    b->gemm = calloc(1, sizeof(*b->gemm));
    if (b->gemm == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the matrix products");
    if (create_splits(b, err) != 0)
        return -1;
    if (b->config.fp8_activations &&
        cuda_buffer_alloc(&b->base, QUANTISED_BYTES, &b->gemm->quantised, err) != 0)
        return -1;
    if (b->config.batch_invariant)
        return 0;
    int major = 0;
    if (CUBLAS_START(err, cublasLtCreate, &b->gemm->handle) != 0 ||
        CUDA_START(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, b->device),
                   err) != 0)
        return -1;
    if (create_widened(b, err) != 0)
        return -1;
    return cuda_buffer_alloc(&b->base, cuda_product_workspace_bytes(major), &b->gemm->workspace,
                             err);
}

static void free_shape(struct gemm_shape *shape) {
    for (int kind = 0; kind < NUM_KINDS; kind++)
        for (int bucket = 0; bucket < NUM_BUCKETS; bucket++)
            free(shape->choices[kind][bucket].exceptions);
    free(shape);
}

void cuda_gemm_destroy(struct cuda_backend *b) {
    if (b->gemm == NULL)
        return;
    for (struct gemm_shape *shape = b->gemm->shapes, *next; shape != NULL; shape = next) {
        next = shape->next;
        free_shape(shape);
    }
    cuda_buffer_free(&b->base, &b->gemm->workspace);
    cuda_buffer_free(&b->base, &b->gemm->widened);
    cuda_buffer_free(&b->base, &b->gemm->quantised);
    cuda_buffer_free(&b->base, &b->gemm->splits);
    if (b->gemm->handle != NULL)
        CUBLAS_RELEASE(b, cublasLtDestroy, b->gemm->handle);
    free(b->gemm);
    b->gemm = NULL;
}

/* Of packed weights, or -1: plain; PACKED_NUM_FORMS: E4M3 with codes of x. */
static int form_number(const struct gemm_part *part) {
    if (part->segment == NULL)
        return -1;
    return part->x.codes != NULL ? PACKED_NUM_FORMS : part->segment->form;
}

static bool is_of_shape(const struct gemm_part *part, const struct gemm_shape *shape) {
    const struct matrix *weight = part->args->weight;
    return shape->rows == part->num_rows && shape->cols == weight->cols &&
           shape->out_stride == weight->rows && shape->biased == (weight->bias != NULL) &&
           shape->form == form_number(part);
}

/* Finds or creates the part's, which lives as long as the backend. NULL with a failure. */
static struct gemm_shape *shape_of(struct cuda_backend *b, const struct gemm_part *part) {
    const struct matrix *weight = part->args->weight;
    struct gemm_shape *shape = b->gemm->shapes;
    while (shape != NULL && !is_of_shape(part, shape))
        shape = shape->next;
    if (shape != NULL)
        return shape;
    shape = calloc(1, sizeof(*shape));
    if (shape == NULL) {
        error_set(&b->failure, ERROR_MEMORY,
                  "out of memory for the algorithms of a matrix of %d x %d", part->num_rows,
                  weight->cols);
        return NULL;
    }
    *shape = (struct gemm_shape){.next = b->gemm->shapes,
                                 .rows = part->num_rows,
                                 .cols = weight->cols,
                                 .out_stride = weight->rows,
                                 .form = form_number(part),
                                 .biased = weight->bias != NULL};
    b->gemm->shapes = shape;
    return shape;
}

/* The smallest of 1, 2, 3, 4, 6, 8, 12, ... that is not below num_rows. */
static int bucket_of(int32_t num_rows, int32_t *out_size) {
    int bucket = 0;
    int32_t size = 1, step = 1;
    for (; size < num_rows; bucket++) {
        size += step;
        if (bucket % 2 == 0 && bucket > 0)
            step = size / 2;
    }
    *out_size = size;
    return bucket;
}

static struct cuda_product_form form_of(const struct cuda_backend *b,
                                        const struct gemm_part *part) {
    const struct linear_args *args = part->args;
    const struct matrix *weight = args->weight;
    const cudaDataType_t type = cuda_is_bf16(b) ? CUDA_R_16BF : CUDA_R_16F;
    const bool is_fp8 = part->x.codes != NULL;
    void *bias = args->float_out ? (void *)weight->float_bias : weight->bias;
    return (struct cuda_product_form){.type = is_fp8 ? CUDA_R_8F_E4M3 : type,
                                      .out_type = args->float_out ? CUDA_R_32F : type,
                                      .rows = part->num_rows,
                                      .cols = weight->cols,
                                      .out_stride = weight->rows,
                                      .weight_scales = is_fp8 ? part->segment->row_scales : NULL,
                                      .x_scales = part->x.scales,
                                      .bias = bias != NULL ? gemm_part_out(part, bias) : NULL};
}

/* Of cuBLASLt, for one number of rows; 0 also after a failure. */
static int find_candidates(struct cuda_backend *b, const struct gemm_part *part, int32_t num_rows,
                           cublasLtMatmulAlgo_t out[NUM_CANDIDATES]) {
    const struct cuda_product_form form = form_of(b, part);
    struct cuda_product product;
    int num_candidates = 0;
    if (!CUBLAS_TRY(b, cuda_product_init, &product, &form, num_rows) ||
        !CUBLAS_TRY(b, cuda_product_candidates, b->gemm->handle, &product, b->gemm->workspace.bytes,
                    NUM_CANDIDATES, out, &num_candidates))
        return 0;
    return num_candidates;
}

/* Where packed weights are widened; NULL: they are plain. */
static void *widened_of(const struct cuda_backend *b, const struct gemm_part *part) {
    return part->segment != NULL && part->x.codes == NULL ? b->gemm->widened.data : NULL;
}

static struct cuda_product_arrays arrays_of(const struct cuda_backend *b,
                                            const struct gemm_part *part) {
    const struct linear_args *args = part->args;
    void *out = gemm_part_out(part, args->out), *widened = widened_of(b, part);
    return (struct cuda_product_arrays){
        .weights = widened != NULL ? widened : cuda_part_planes(part).at[PACKED_LOW],
        .x = part->x.codes != NULL ? part->x.codes : args->x,
        .addend = args->accumulate ? out : NULL,
        .out = out,
        .scale = args->scale,
        .workspace = b->gemm->workspace.data,
        .workspace_bytes = b->gemm->workspace.bytes};
}

/* The place of our own among the candidates; -1: it is none. */
static int place_of_ours(const struct gemm_part *part, int32_t num_rows, int num_candidates) {
    const int32_t first = part->segment == NULL   ? PACKED_NARROW_ROWS
                          : part->x.codes == NULL ? WIDENED_ROWS
                                                  : OUR_ROWS;
    if (part->segment == NULL && num_rows > OUR_ROWS)
        return -1;
    return num_rows <= first || num_candidates == 0 ? 0 : 1;
}

/* The fastest is expected to be first. Returns their number. */
static int list_algorithms(struct cuda_backend *b, const struct gemm_part *part, int32_t num_rows,
                           struct cuda_algorithm out[NUM_CANDIDATES + 1]) {
    cublasLtMatmulAlgo_t candidates[NUM_CANDIDATES];
    const int num_candidates = find_candidates(b, part, num_rows, candidates);
    const int ours = place_of_ours(part, num_rows, num_candidates);
    int num = 0;
    for (int i = 0; i <= num_candidates; i++) {
        if (i == ours && CUDA_OK(b))
            out[num++] = (struct cuda_algorithm){.is_ours = true};
        if (i < num_candidates)
            out[num++] = (struct cuda_algorithm){.of_cublaslt = candidates[i]};
    }
    return num;
}

/* num_rows: the largest of the bucket. */
static void choose(struct cuda_backend *b, const struct gemm_part *part, int32_t num_rows,
                   struct choice *choice) {
    struct cuda_algorithm algorithms[NUM_CANDIDATES + 1];
    const int num_algorithms = list_algorithms(b, part, num_rows, algorithms);
    if (num_algorithms > 0) {
        const struct cuda_tuned_product tuned = {.part = part,
                                                 .handle = b->gemm->handle,
                                                 .form = form_of(b, part),
                                                 .num_rows = part->args->num_rows,
                                                 .arrays = arrays_of(b, part),
                                                 .widened = widened_of(b, part)};
        choice->made = true;
        choice->algorithm = algorithms[cuda_tuning_fastest(b, &tuned, algorithms, num_algorithms)];
    } else if (CUDA_OK(b)) {
        error_set(&b->failure, ERROR_DEVICE,
                  "cuBLASLt has no algorithm for the product of %d rows with weights of %d x %d",
                  num_rows, part->num_rows, part->args->weight->cols);
    }
}

/* --- Products --- */

/* NULL after a failure. */
static struct choice *choice_for(struct cuda_backend *b, const struct gemm_part *part) {
    const struct linear_args *args = part->args;
    struct gemm_shape *shape = shape_of(b, part);
    if (shape == NULL)
        return NULL;
    int32_t size = 0;
    int bucket = bucket_of(args->num_rows, &size);
    int kind = (args->accumulate ? 1 : 0) + (args->float_out ? 2 : 0);
    struct choice *choice = &shape->choices[kind][bucket];
    if (!choice->made)
        choose(b, part, size, choice);
    return choice->made ? choice : NULL;
}

static struct exception *find_exception(const struct choice *choice, int32_t num_rows) {
    for (int32_t i = 0; i < choice->num_exceptions; i++)
        if (choice->exceptions[i].num_rows == num_rows)
            return &choice->exceptions[i];
    return NULL;
}

/* NULL with a failure when memory is short. */
static struct exception *add_exception(struct cuda_backend *b, struct choice *choice,
                                       int32_t num_rows) {
    if (choice->num_exceptions == choice->max_exceptions) {
        int32_t max = choice->max_exceptions == 0 ? 4 : 2 * choice->max_exceptions;
        struct exception *grown =
            realloc(choice->exceptions, (size_t)max * sizeof(*choice->exceptions));
        if (grown == NULL) {
            error_set(&b->failure, ERROR_MEMORY,
                      "out of memory for the algorithms of matrix products");
            return NULL;
        }
        choice->exceptions = grown;
        choice->max_exceptions = max;
    }
    struct exception *added = &choice->exceptions[choice->num_exceptions++];
    *added = (struct exception){.num_rows = num_rows};
    return added;
}

static cublasStatus_t multiply(struct cuda_backend *b, struct cuda_product *product,
                               const struct gemm_part *part,
                               const cublasLtMatmulAlgo_t *algorithm) {
    const struct cuda_product_arrays arrays = arrays_of(b, part);
    return cuda_product_multiply(b->gemm->handle, product, algorithm, &arrays, b->stream);
}

/* Multiplies with the first algorithm that is taken for this number of rows, and remembers it. */
static cublasStatus_t multiply_otherwise(struct cuda_backend *b, struct cuda_product *product,
                                         const struct gemm_part *part, struct choice *choice,
                                         struct exception *exception) {
    cublasLtMatmulAlgo_t candidates[NUM_CANDIDATES];
    int num_candidates = find_candidates(b, part, part->args->num_rows, candidates);
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < num_candidates && cuda_product_is_refusal(status); i++) {
        status = multiply(b, product, part, &candidates[i]);
        if (status != CUBLAS_STATUS_SUCCESS)
            continue;
        if (exception == NULL)
            exception = add_exception(b, choice, part->args->num_rows);
        if (exception != NULL)
            exception->algorithm = candidates[i];
    }
    return status;
}

static void fail_refused(struct cuda_backend *b, const struct gemm_part *part,
                         cublasStatus_t status) {
    error_set(&b->failure, ERROR_DEVICE,
              "every algorithm of cuBLASLt for weights of %d x %d cannot multiply %d rows: %s "
              "(cublasLtMatmul)",
              part->num_rows, part->args->weight->cols, part->args->num_rows,
              cublasLtGetStatusName(status));
}

static void multiply_chosen(struct cuda_backend *b, const struct gemm_part *part,
                            struct choice *choice) {
    const struct cuda_product_form form = form_of(b, part);
    struct cuda_product product;
    if (!CUBLAS_TRY(b, cuda_product_init, &product, &form, part->args->num_rows))
        return;
    if (widened_of(b, part) != NULL)
        cuda_packed_widen(b, part, b->gemm->widened.data);
    struct exception *exception = find_exception(choice, part->args->num_rows);
    cublasStatus_t status =
        multiply(b, &product, part,
                 exception != NULL ? &exception->algorithm : &choice->algorithm.of_cublaslt);
    if (cuda_product_is_refusal(status))
        status = multiply_otherwise(b, &product, part, choice, exception);
    if (cuda_product_is_refusal(status) && part->segment != NULL) {
        cuda_multiply_ours(b, part, gemm_part_out(part, part->args->out));
        return;
    }
    if (cuda_product_is_refusal(status) && CUDA_OK(b))
        fail_refused(b, part, status);
    cublas_check_keep(b, status, "cublasLtMatmul", __FILE__, __LINE__);
}

static void multiply_part(struct cuda_backend *b, const struct gemm_part *part, bool ours) {
    struct choice *choice = ours ? NULL : choice_for(b, part);
    if (ours || (choice != NULL && choice->algorithm.is_ours))
        cuda_multiply_ours(b, part, gemm_part_out(part, part->args->out));
    else if (choice != NULL)
        multiply_chosen(b, part, choice);
}

/* Rows of packed weights that are widened at once. */
static int32_t widened_rows(const struct cuda_backend *b, const struct matrix *weight) {
    const size_t row_bytes = sizeof(uint16_t) * (size_t)weight->cols;
    const int32_t rows = (int32_t)(b->gemm->widened.bytes / row_bytes);
    return rows - rows % CUDA_MATRIX_COLS_STEP;
}

static bool quantises_x(const struct cuda_backend *b, const struct matrix_segment *segment) {
    return b->config.fp8_activations && segment->dtype == DTYPE_E4M3_128;
}

/* For as many rows as there is room for, of which whole tiles are taken. */
static struct quantised_rows quantised_rows_of(const struct cuda_backend *b,
                                               const struct matrix *weight, int32_t *out_most) {
    const size_t cols = (size_t)weight->cols, bytes = b->gemm->quantised.bytes;
    const size_t rows = bytes / (cols + sizeof(float));
    *out_most = (int32_t)(rows > PACKED_WIDE_X ? rows - rows % PACKED_WIDE_X : rows);
    uint8_t *codes = b->gemm->quantised.data;
    return (struct quantised_rows){.codes = codes,
                                   .scales = (float *)(void *)(codes + rows * cols)};
}

/* cuBLASLt takes no bias of floats there. */
static bool takes_cublaslt(const struct cuda_backend *b, const struct linear_args *args,
                           const struct matrix_segment *segment) {
    return b->scales_fp8_rows && segment->is_by_row && args->num_rows > OUR_ROWS &&
           segment->first_row % CUDA_MATRIX_COLS_STEP == 0 &&
           !(args->float_out && args->weight->bias != NULL);
}

static void multiply_quantised(struct cuda_backend *b, const struct linear_args *args,
                               const struct matrix_segment *segment) {
    struct linear_args rows = *args;
    struct gemm_part part = {.args = &rows,
                             .segment = segment,
                             .first_row = segment->first_row,
                             .num_rows = segment->num_rows,
                             .splits = splits_of(b)};
    int32_t most;
    part.x = quantised_rows_of(b, args->weight, &most);
    const size_t x_bytes = sizeof(uint16_t) * (size_t)args->weight->cols;
    const size_t out_bytes =
        (args->float_out ? sizeof(float) : sizeof(uint16_t)) * (size_t)args->weight->rows;
    for (int32_t first = 0; first < args->num_rows; first += rows.num_rows) {
        rows.num_rows = min_int32(args->num_rows - first, most);
        rows.x = (const char *)args->x + (size_t)first * x_bytes;
        rows.out = (char *)args->out + (size_t)first * out_bytes;
        cuda_quantise(b, &part);
        multiply_part(b, &part, !takes_cublaslt(b, &rows, segment));
    }
}

static void multiply_packed(struct cuda_backend *b, const struct linear_args *args,
                            const struct matrix_segment *segment) {
    const int32_t most = widened_rows(b, args->weight);
    const bool ours = b->config.batch_invariant || args->num_rows <= OUR_ROWS || most == 0 ||
                      segment->first_row % CUDA_MATRIX_COLS_STEP != 0;
    struct gemm_part part = {.args = args, .segment = segment, .splits = splits_of(b)};
    for (int32_t row = 0; row < segment->num_rows; row += part.num_rows) {
        part.first_row = segment->first_row + row;
        part.num_rows = ours ? segment->num_rows : min_int32(segment->num_rows - row, most);
        multiply_part(b, &part, ours);
    }
}

void cuda_linear(struct backend *base, const struct linear_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    const struct matrix *weight = args->weight;
    if (args->num_rows == 0)
        return;
    if (weight->values != NULL)
        multiply_part(
            b, &(struct gemm_part){.args = args, .num_rows = weight->rows, .splits = splits_of(b)},
            b->config.batch_invariant);
    for (int i = 0; weight->values == NULL && i < weight->num_segments; i++) {
        const struct matrix_segment *segment = &weight->segments[i];
        (quantises_x(b, segment) ? multiply_quantised : multiply_packed)(b, args, segment);
    }
}

/* Of a matrix that one launch of our own multiplies. */
bool cuda_linear_gated(struct backend *base, const struct linear_args *args,
                       enum activation activation) {
    struct cuda_backend *b = cuda_state_of(base);
    const struct matrix *weight = args->weight;
    const bool packed = weight->values == NULL;
    struct gemm_part part = {.args = args,
                             .segment = packed ? weight->segments : NULL,
                             .num_rows = weight->rows,
                             .splits = splits_of(b)};
    if (args->num_rows > PACKED_NARROW_ROWS || (packed && weight->num_segments > 1))
        return false;
    if (args->num_rows == 0)
        return true;
    if (!packed && !b->config.batch_invariant) {
        const struct choice *choice = choice_for(b, &part);
        if (choice == NULL || !choice->algorithm.is_ours)
            return false;
    }
    if (packed && quantises_x(b, weight->segments)) {
        /* More than PACKED_NARROW_ROWS, as a row is at most CUDA_STAGING_CHUNK_BYTES. */
        int32_t most;
        part.x = quantised_rows_of(b, weight, &most);
        cuda_quantise(b, &part);
    }
    cuda_multiply_gated(b, &part, activation);
    return true;
}
