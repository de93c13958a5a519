/* Random data is made once on the host as two tiles, which are repeated over the weights and over x
 * and the initial result. The number of their elements is a prime, so that no two rows of a matrix
 * are the same. Both are of variance 1; the product is scaled to it, too. */
#include "tests/kernels/product_timer.h"

#include "kernels/dtype.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define TILE_ITEMS ((size_t)524287)
#define TILE_BYTES (TILE_ITEMS * sizeof(uint16_t))
#define ALIGNMENT ((size_t)256)
#define NUM_CHECKED 4 /* elements of a row that are looked at */

#define EXIT_SKIPPED 77

#define CUDA(call) product_timer_check(call, #call)
#define CUBLAS(call) check_cublas(call, #call)

_Noreturn void product_timer_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

void product_timer_check(cudaError_t status, const char *call) {
    if (status != cudaSuccess)
        product_timer_fail("%s: %s", call, cudaGetErrorString(status));
}

static void check_cublas(cublasStatus_t status, const char *call) {
    if (status != CUBLAS_STATUS_SUCCESS)
        product_timer_fail("%s: %s", call, cublasLtGetStatusString(status));
}

static bool is_float(cudaDataType_t type) {
    return type == CUDA_R_32F;
}

static enum dtype dtype_of(cudaDataType_t type) {
    return type == CUDA_R_16BF ? DTYPE_BF16 : type == CUDA_R_16F ? DTYPE_F16 : DTYPE_F32;
}

static float value_of(const struct product_timer *timer, const uint16_t *tile, size_t i) {
    float value;
    dtype_to_f32(dtype_of(timer->form.type), &tile[i % TILE_ITEMS], &value, 1);
    return value;
}

/* --- Memory --- */

static size_t align(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The sum of four uniform numbers, whose variance is 1/3. */
static uint16_t *make_tile(enum dtype dtype, uint64_t seed) {
    uint16_t *tile = malloc(TILE_BYTES);
    if (tile == NULL)
        product_timer_fail("no memory for random numbers");
    for (size_t i = 0; i < TILE_ITEMS; i++) {
        float sum = -2.0F;
        for (int j = 0; j < 4; j++) {
            seed = seed * 6364136223846793005U + 1442695040888963407U;
            sum += (float)(seed >> 40) * 0x1p-24F;
        }
        sum *= 1.7320508F;
        dtype_from_f32(dtype, &sum, &tile[i], 1);
    }
    return tile;
}

/* What is there doubles with each copy. */
static void fill(struct product_timer *timer, void *memory, size_t bytes, const uint16_t *tile) {
    char *start = memory;
    size_t done = bytes < TILE_BYTES ? bytes : TILE_BYTES;
    CUDA(cudaMemcpyAsync(start, tile, done, cudaMemcpyHostToDevice, timer->stream));
    while (done < bytes) {
        size_t count = bytes - done < done ? bytes - done : done;
        CUDA(cudaMemcpyAsync(start + done, start, count, cudaMemcpyDeviceToDevice, timer->stream));
        done += count;
    }
    CUDA(cudaStreamSynchronize(timer->stream));
}

static void *take(size_t bytes) {
    void *memory = NULL;
    CUDA(cudaMalloc(&memory, bytes));
    return memory;
}

static size_t out_item_bytes(const struct product_timer *timer) {
    return is_float(timer->form.out_type) ? sizeof(float) : sizeof(uint16_t);
}

static size_t out_bytes(const struct product_timer *timer, int32_t num_rows) {
    return (size_t)num_rows * (size_t)timer->form.rows * out_item_bytes(timer);
}

static void allocate(struct product_timer *timer) {
    const struct cuda_product_form *form = &timer->form;
    size_t x_bytes = (size_t)timer->max_rows * (size_t)form->cols * sizeof(uint16_t);
    timer->weights = take((size_t)timer->num_copies * timer->copy_bytes);
    timer->x = take(x_bytes);
    timer->out = take(out_bytes(timer, timer->max_rows));
    timer->workspace = take(timer->workspace_bytes);
    timer->weights_tile = make_tile(dtype_of(form->type), 20261123);
    timer->x_tile = make_tile(dtype_of(form->type), 20261124);
    for (int64_t i = 0; i < timer->num_copies; i++)
        fill(timer, timer->weights + (size_t)i * timer->copy_bytes,
             (size_t)form->rows * (size_t)form->cols * sizeof(uint16_t), timer->weights_tile);
    fill(timer, timer->x, x_bytes, timer->x_tile);
}

int product_timer_find_device(void) {
    int count = 0, major = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        fprintf(stderr, "there is no CUDA GPU\n");
        exit(EXIT_SKIPPED);
    }
    CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    return major;
}

void product_timer_init(struct product_timer *out, const struct cuda_product_form *form,
                        bool accumulate, int32_t max_rows, size_t rotate_bytes,
                        int64_t min_launches) {
    size_t bytes = (size_t)form->rows * (size_t)form->cols * sizeof(uint16_t);
    *out = (struct product_timer){.form = *form,
                                  .accumulate = accumulate,
                                  .max_rows = max_rows,
                                  .copy_bytes = align(bytes),
                                  .num_copies = (int64_t)((rotate_bytes + bytes - 1) / bytes),
                                  .workspace_bytes =
                                      cuda_product_workspace_bytes(product_timer_find_device())};
    if (out->num_copies < 1)
        out->num_copies = 1;
    out->launches = out->num_copies > min_launches ? out->num_copies : min_launches;
    CUBLAS(cublasLtCreate(&out->handle));
    CUDA(cudaStreamCreateWithFlags(&out->stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&out->start, cudaEventDefault));
    CUDA(cudaEventCreateWithFlags(&out->end, cudaEventDefault));
    allocate(out);
}

void product_timer_finish(struct product_timer *timer) {
    free(timer->weights_tile);
    free(timer->x_tile);
    CUDA(cudaFree(timer->workspace));
    CUDA(cudaFree(timer->out));
    CUDA(cudaFree(timer->x));
    CUDA(cudaFree(timer->weights));
    CUDA(cudaEventDestroy(timer->end));
    CUDA(cudaEventDestroy(timer->start));
    CUDA(cudaStreamDestroy(timer->stream));
    CUBLAS(cublasLtDestroy(timer->handle));
}

/* --- Results --- */

void product_timer_set(struct product_timer *timer, int32_t num_rows) {
    timer->num_rows = num_rows;
    timer->num_seen = num_rows < PRODUCT_TIMER_MAX_SEEN ? num_rows : PRODUCT_TIMER_MAX_SEEN;
    CUBLAS(cuda_product_init(&timer->product, &timer->form, num_rows));
}

int product_timer_candidates(struct product_timer *timer, int max, cublasLtMatmulAlgo_t out[]) {
    int num_candidates = 0;
    CUBLAS(cuda_product_candidates(timer->handle, &timer->product, timer->workspace_bytes, max, out,
                                   &num_candidates));
    return num_candidates;
}

static float scale_of(const struct product_timer *timer) {
    return 1.0F / sqrtf((float)timer->form.cols);
}

static cublasStatus_t enqueue(struct product_timer *timer, const cublasLtMatmulAlgo_t *algorithm,
                              int64_t copy) {
    const struct cuda_product_arrays arrays = {
        .weights = timer->weights + (size_t)(copy % timer->num_copies) * timer->copy_bytes,
        .x = timer->x,
        .out = timer->out,
        .scale = scale_of(timer),
        .addend = timer->accumulate ? timer->out : NULL,
        .workspace = timer->workspace,
        .workspace_bytes = timer->workspace_bytes};
    return cuda_product_multiply(timer->handle, &timer->product, algorithm, &arrays, timer->stream);
}

static int32_t seen_row(const struct product_timer *timer, int32_t i) {
    return timer->num_seen < 2
               ? 0
               : (int32_t)((int64_t)i * (timer->num_rows - 1) / (timer->num_seen - 1));
}

bool product_timer_multiply(struct product_timer *timer, const cublasLtMatmulAlgo_t *algorithm,
                            float *seen) {
    size_t width = (size_t)timer->form.rows, row_bytes = out_bytes(timer, 1);
    fill(timer, timer->out, out_bytes(timer, timer->num_rows), timer->x_tile);
    cublasStatus_t status = enqueue(timer, algorithm, 0);
    if (cuda_product_is_refusal(status))
        return false;
    CUBLAS(status);
    CUDA(cudaStreamSynchronize(timer->stream));
    char *row = malloc(row_bytes);
    if (row == NULL)
        product_timer_fail("no memory for a row of a result");
    for (int32_t i = 0; i < timer->num_seen; i++) {
        const char *from = timer->out;
        CUDA(cudaMemcpy(row, from + (size_t)seen_row(timer, i) * row_bytes, row_bytes,
                        cudaMemcpyDeviceToHost));
        dtype_to_f32(dtype_of(timer->form.out_type), row, seen + (size_t)i * width, width);
    }
    free(row);
    return true;
}

double product_timer_tolerance(const struct product_timer *timer) {
    return is_float(timer->form.out_type)       ? 1e-4
           : timer->form.out_type == CUDA_R_16F ? 0x1p-10
                                                : 0x1p-7;
}

/* As the device should have it, but for rounding. */
static double define(const struct product_timer *timer, size_t m, size_t n) {
    size_t cols = (size_t)timer->form.cols;
    double sum = 0;
    for (size_t k = 0; k < cols; k++)
        sum += (double)value_of(timer, timer->x_tile, m * cols + k) *
               value_of(timer, timer->weights_tile, n * cols + k);
    sum *= scale_of(timer);
    if (timer->accumulate)
        sum += value_of(timer, timer->x_tile, m * (size_t)timer->form.rows + n);
    return sum;
}

double product_timer_error(const struct product_timer *timer, const float *seen) {
    size_t width = (size_t)timer->form.rows;
    double worst = 0;
    for (int32_t i = 0; i < timer->num_seen; i++)
        for (size_t j = 0; j < NUM_CHECKED; j++) {
            size_t n = (j * width / NUM_CHECKED + 7919 * (size_t)i) % width;
            double wanted = define(timer, (size_t)seen_row(timer, i), n);
            double error = fabs(seen[(size_t)i * width + n] - wanted) /
                           (product_timer_tolerance(timer) * (1 + fabs(wanted)));
            worst = error <= worst ? worst : error; /* NaN counts */
        }
    return worst;
}

/* --- Time --- */

cudaGraphExec_t product_timer_capture(struct product_timer *timer,
                                      const cublasLtMatmulAlgo_t *algorithm) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(timer->stream, cudaStreamCaptureModeThreadLocal));
    for (int64_t i = 0; i < timer->launches; i++)
        CUBLAS(enqueue(timer, algorithm, i));
    CUDA(cudaStreamEndCapture(timer->stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaGraphUpload(exec, timer->stream));
    return exec;
}

double product_timer_replay(struct product_timer *timer, cudaGraphExec_t graph) {
    float ms = 0;
    CUDA(cudaEventRecord(timer->start, timer->stream));
    CUDA(cudaGraphLaunch(graph, timer->stream));
    CUDA(cudaEventRecord(timer->end, timer->stream));
    CUDA(cudaStreamSynchronize(timer->stream));
    CUDA(cudaEventElapsedTime(&ms, timer->start, timer->end));
    return 1e3 * ms / (double)timer->launches;
}
