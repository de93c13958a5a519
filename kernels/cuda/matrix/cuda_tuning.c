/* How a product's algorithms are timed.
 *
 * In a step the weights of a product come from memory, since those of all other products were read
 * after the last time. So before each run the cache is overwritten (as nvbench and Triton's
 * do_bench do). Meanwhile the host enqueues the run, whose time between two events is then the
 * device's alone. The algorithms take turns, so that clocks and temperature are the same for each,
 * and each one's median counts.
 *
 * The first turn is neither timed nor charged to the budget: kernels are loaded then, milliseconds
 * each for which the device waits, and results compared. What the result is written to is the
 * memory that overwrites the cache, filled with NaNs, so that the step keeps its own, and an
 * algorithm that writes nothing is seen. After that no product begins early (cuda_levels.h), as
 * ours do in a step. */
#include "kernels/cuda/matrix/cuda_tuning.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/cuda/matrix/cublas_check.h"
#include "kernels/cuda/step/cuda_streams.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUM_TURNS 5
#define NUM_SEEN 4       /* rows of a result that are compared */
#define LEAST_GAIN 0.02  /* of the first one's time, for another to be taken */
#define NOT_A_NUMBER 255 /* each byte of a bf16, an f16 and a float */
#define HASH_START UINT32_C(2166136261)
#define HASH_FACTOR UINT32_C(16777619)

struct timed_algorithm {
    const struct cuda_algorithm *algorithm;
    bool is_left_out;
    double seconds[NUM_TURNS];
};

struct cuda_tuning {
    struct buffer scratch; /* twice the cache at least, and as large as a result so far */
    struct buffer results; /* pinned: [count][num_seen][row_bytes] of the trial */
    size_t cache_bytes;
    cudaEvent_t begins[CUDA_TUNING_MAX_ALGORITHMS], ends[CUDA_TUNING_MAX_ALGORITHMS];
    cudaEvent_t begin, end; /* of a turn */
    double budget;
    uint32_t hash; /* of products whose algorithm is not the first, and that algorithm (FNV-1a) */
    struct tuning_report report;
};

/* What is known of one product. */
struct trial {
    const struct cuda_tuned_product *tuned;
    struct cuda_product product;
    struct cuda_product_arrays arrays;
    size_t row_bytes, pitch; /* of the result; from row to row */
    int32_t num_seen;
    struct timed_algorithm timed[CUDA_TUNING_MAX_ALGORITHMS];
    int count;
    float *first, *other; /* results, [num_seen][form.rows] */
};

/* --- Begin and end --- */

static int create_event(cudaEvent_t *out, struct error *err) {
    return CUDA_START(cudaEventCreateWithFlags(out, cudaEventDefault), err);
}

static void destroy_event(struct cuda_backend *b, cudaEvent_t event) {
    if (event != NULL)
        CUDA_RELEASE(b, cudaEventDestroy(event));
}

static int create(struct cuda_tuning *tuning, int device, struct error *err) {
    int cache_bytes = 0;
    if (CUDA_START(cudaDeviceGetAttribute(&cache_bytes, cudaDevAttrL2CacheSize, device), err) != 0)
        return -1;
    tuning->cache_bytes = (size_t)cache_bytes;
    for (int i = 0; i < CUDA_TUNING_MAX_ALGORITHMS; i++)
        if (create_event(&tuning->begins[i], err) != 0 || create_event(&tuning->ends[i], err) != 0)
            return -1;
    return create_event(&tuning->begin, err) != 0 || create_event(&tuning->end, err) != 0 ? -1 : 0;
}

static int tuning_begin(struct backend *base, double budget_seconds, struct error *err) {
    struct cuda_backend *b = cuda_state_of(base);
    CHECK(b->tuning == NULL);
    if (b->config.batch_invariant)
        return 0;
    b->tuning = calloc(1, sizeof(*b->tuning));
    if (b->tuning == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory to time matrix products");
    b->tuning->budget = budget_seconds;
    b->tuning->hash = HASH_START;
    if (create(b->tuning, b->device, err) == 0)
        return 0;
    cuda_tuning_destroy(b);
    return -1;
}

void cuda_tuning_destroy(struct cuda_backend *b) {
    struct cuda_tuning *tuning = b->tuning;
    if (tuning == NULL)
        return;
    for (int i = 0; i < CUDA_TUNING_MAX_ALGORITHMS; i++) {
        destroy_event(b, tuning->begins[i]);
        destroy_event(b, tuning->ends[i]);
    }
    destroy_event(b, tuning->begin);
    destroy_event(b, tuning->end);
    cuda_buffer_free(&b->base, &tuning->scratch);
    cuda_host_free(&b->base, &tuning->results);
    free(tuning);
    b->tuning = NULL;
}

static void tuning_end(struct backend *base, struct tuning_report *out) {
    struct cuda_backend *b = cuda_state_of(base);
    *out = (struct tuning_report){0};
    if (b->tuning == NULL)
        return;
    *out = b->tuning->report;
    if (out->num_changed > 0) {
        size_t used = strlen(base->numerics);
        snprintf(base->numerics + used, sizeof(base->numerics) - used, ", products %08x",
                 b->tuning->hash);
    }
    cuda_tuning_destroy(b);
}

const struct tuning_ops cuda_tuning_ops = {.begin = tuning_begin, .end = tuning_end};

/* --- Turns --- */

/* False when the algorithm is refused, and after a failure. */
static bool run(struct cuda_backend *b, struct trial *t, const struct cuda_algorithm *algorithm) {
    if (algorithm->is_ours) {
        cuda_multiply_ours(b, t->tuned->part, t->arrays.out);
        return CUDA_OK(b);
    }
    if (t->tuned->widened != NULL)
        cuda_packed_widen(b, t->tuned->part, t->tuned->widened);
    cublasStatus_t status =
        CUDA_OK(b) ? cuda_product_multiply(t->tuned->handle, &t->product, &algorithm->of_cublaslt,
                                           &t->arrays, b->stream)
                   : CUBLAS_STATUS_NOT_SUPPORTED;
    return !cuda_product_is_refusal(status) &&
           cublas_check_keep(b, status, "cublasLtMatmul", __FILE__, __LINE__);
}

static void empty_cache(struct cuda_backend *b) {
    const struct buffer *scratch = &b->tuning->scratch;
    CUDA_TRY(b, cudaMemsetAsync(scratch->data, NOT_A_NUMBER, scratch->bytes, b->stream));
}

static char *result_of(const struct cuda_backend *b, const struct trial *t, int index) {
    return (char *)b->tuning->results.data + (size_t)index * (size_t)t->num_seen * t->row_bytes;
}

static void bring_rows(struct cuda_backend *b, const struct trial *t, int32_t first_row,
                       int32_t num_rows, char *out) {
    const char *from = (const char *)t->arrays.out + (size_t)first_row * t->pitch;
    for (int32_t row = 0; row < num_rows; row++)
        CUDA_TRY(b, cudaMemcpyAsync(out + (size_t)row * t->row_bytes, from + (size_t)row * t->pitch,
                                    t->row_bytes, cudaMemcpyDeviceToHost, b->stream));
}

/* Brings the first rows of each result and the last, where tiles may be cut. False after a
 * failure. */
static bool run_first_turn(struct cuda_backend *b, struct trial *t) {
    int32_t num_first = (t->num_seen + 1) / 2, num_last = t->num_seen - num_first;
    for (int i = 0; i < t->count; i++) {
        char *result = result_of(b, t, i);
        empty_cache(b);
        t->timed[i].is_left_out = !run(b, t, t->timed[i].algorithm);
        bring_rows(b, t, 0, num_first, result);
        bring_rows(b, t, t->tuned->num_rows - num_last, num_last,
                   result + (size_t)num_first * t->row_bytes);
    }
    cuda_streams_await(b, NULL);
    return CUDA_OK(b);
}

static void enqueue_turn(struct cuda_backend *b, struct trial *t) {
    struct cuda_tuning *tuning = b->tuning;
    for (int i = 0; i < t->count; i++) {
        if (t->timed[i].is_left_out)
            continue;
        empty_cache(b);
        CUDA_TRY(b, cudaEventRecord(tuning->begins[i], b->stream));
        run(b, t, t->timed[i].algorithm);
        CUDA_TRY(b, cudaEventRecord(tuning->ends[i], b->stream));
    }
}

static double elapsed(struct cuda_backend *b, cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    CUDA_TRY(b, cudaEventElapsedTime(&ms, from, to));
    return 1e-3 * (double)ms;
}

static bool is_spent(const struct cuda_tuning *tuning) {
    return tuning->report.seconds >= tuning->budget;
}

/* Waits for a turn, whose time is taken from the budget. False when that was spent before, and
 * after a failure. */
static bool run_turn(struct cuda_backend *b, struct trial *t) {
    struct cuda_tuning *tuning = b->tuning;
    if (is_spent(tuning))
        return false;
    CUDA_TRY(b, cudaEventRecord(tuning->begin, b->stream));
    enqueue_turn(b, t);
    CUDA_TRY(b, cudaEventRecord(tuning->end, b->stream));
    cuda_streams_await(b, NULL);
    tuning->report.seconds += elapsed(b, tuning->begin, tuning->end);
    return CUDA_OK(b);
}

/* --- Results --- */

/* Tensor cores keep 13 bits of a sum of E4M3 products; which, depends on the algorithm. */
static double tolerance_of(const struct cuda_product_form *form) {
    const cudaDataType_t out_type = form->out_type;
    if (form->type == CUDA_R_8F_E4M3)
        return 0x1p-7;
    return out_type == CUDA_R_32F ? 1e-4 : out_type == CUDA_R_16F ? 0x1p-10 : 0x1p-7;
}

static void read_result(const struct cuda_backend *b, const struct trial *t, int index,
                        float *out) {
    bool is_float = t->tuned->form.out_type == CUDA_R_32F;
    dtype_to_f32(is_float ? DTYPE_F32 : b->base.activation_dtype, result_of(b, t, index), out,
                 (size_t)t->num_seen * (size_t)t->tuned->form.rows);
}

/* By the norm of the difference. False also where a result is not finite, or zero. */
static bool is_same(const struct trial *t) {
    size_t n = (size_t)t->num_seen * (size_t)t->tuned->form.rows;
    double of_first = 0, of_difference = 0;
    for (size_t i = 0; i < n; i++) {
        double difference = (double)t->other[i] - t->first[i];
        of_first += (double)t->first[i] * t->first[i];
        of_difference += difference * difference;
    }
    return sqrt(of_difference / of_first) <= tolerance_of(&t->tuned->form);
}

/* After the first turn: leaves out what is wrong. Returns how many are not left out. */
static int compare(const struct cuda_backend *b, struct trial *t) {
    int num_same = 0;
    for (int i = 0; i < t->count; i++) {
        struct timed_algorithm *timed = &t->timed[i];
        if (timed->is_left_out)
            continue;
        read_result(b, t, i, num_same == 0 ? t->first : t->other);
        timed->is_left_out = num_same > 0 && !is_same(t);
        num_same += !timed->is_left_out;
    }
    return num_same;
}

/* --- Times --- */

static void read_times(struct cuda_backend *b, struct trial *t, int turn) {
    for (int i = 0; i < t->count; i++)
        if (!t->timed[i].is_left_out)
            t->timed[i].seconds[turn] = elapsed(b, b->tuning->begins[i], b->tuning->ends[i]);
}

static int compare_seconds(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(struct timed_algorithm *timed) {
    qsort(timed->seconds, NUM_TURNS, sizeof(timed->seconds[0]), compare_seconds);
    return timed->seconds[NUM_TURNS / 2];
}

/* Of those that are not left out, of which there is one at least. */
static int pick(struct trial *t) {
    int picked = -1;
    double least = 0;
    for (int i = 0; i < t->count; i++) {
        if (t->timed[i].is_left_out)
            continue;
        double seconds = median(&t->timed[i]);
        if (picked < 0 || seconds < least * (picked == 0 ? 1 - LEAST_GAIN : 1)) {
            picked = i;
            least = seconds;
        }
    }
    return picked;
}

/* --- All of it --- */

/* -1: not found out. */
static int find_fastest(struct cuda_backend *b, struct trial *t) {
    if (is_spent(b->tuning) || !run_first_turn(b, t))
        return -1;
    int num_same = compare(b, t);
    for (int turn = 0; num_same > 1 && turn < NUM_TURNS; turn++) {
        if (!run_turn(b, t))
            return -1;
        read_times(b, t, turn);
    }
    return num_same > 0 ? pick(t) : -1;
}

/* Where memory is short, the product is left. */
static bool reserve(struct cuda_backend *b, const struct trial *t) {
    struct cuda_tuning *tuning = b->tuning;
    struct error none;
    size_t seen_bytes = (size_t)t->count * (size_t)t->num_seen * t->row_bytes;
    size_t result_bytes = (size_t)t->tuned->num_rows * t->pitch;
    size_t least = 2 * tuning->cache_bytes, bytes = result_bytes > least ? result_bytes : least;
    if (tuning->results.bytes < seen_bytes) {
        cuda_host_free(&b->base, &tuning->results);
        if (cuda_host_alloc(&b->base, seen_bytes, &tuning->results, &none) != 0)
            return false;
    }
    if (tuning->scratch.bytes < bytes) {
        cuda_buffer_free(&b->base, &tuning->scratch);
        return cuda_buffer_alloc(&b->base, bytes, &tuning->scratch, &none) == 0;
    }
    return true;
}

static bool open_trial(struct cuda_backend *b, const struct cuda_tuned_product *tuned,
                       const struct cuda_algorithm algorithms[], int count, struct trial *out) {
    size_t width = (size_t)tuned->form.rows, stride = (size_t)tuned->form.out_stride;
    size_t item_bytes = tuned->form.out_type == CUDA_R_32F ? 4 : 2;
    *out = (struct trial){.tuned = tuned,
                          .arrays = tuned->arrays,
                          .row_bytes = width * item_bytes,
                          .pitch = stride * item_bytes,
                          .num_seen = min_int32(tuned->num_rows, NUM_SEEN),
                          .count = min_int32(count, CUDA_TUNING_MAX_ALGORITHMS)};
    for (int i = 0; i < out->count; i++)
        out->timed[i].algorithm = &algorithms[i];
    size_t seen = (size_t)out->num_seen * width;
    out->first = calloc(seen, sizeof(float));
    out->other = calloc(seen, sizeof(float));
    if (out->first == NULL || out->other == NULL || !reserve(b, out) ||
        !CUBLAS_TRY(b, cuda_product_init, &out->product, &tuned->form, tuned->num_rows))
        return false;
    out->arrays.out = b->tuning->scratch.data;
    return true;
}

static void close_trial(struct trial *t) {
    free(t->first);
    free(t->other);
}

static uint32_t add_to_hash(uint32_t hash, const void *data, size_t bytes) {
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * HASH_FACTOR;
    return hash;
}

static void count_change(struct cuda_tuning *tuning, const struct cuda_tuned_product *tuned,
                         const struct cuda_algorithm *algorithm) {
    const int32_t product[] = {tuned->form.rows,
                               tuned->form.cols,
                               tuned->num_rows,
                               (int32_t)tuned->form.type,
                               (int32_t)tuned->form.out_type,
                               tuned->form.bias != NULL,
                               tuned->arrays.addend != NULL};
    tuning->report.num_changed++;
    tuning->hash = add_to_hash(tuning->hash, product, sizeof(product));
    tuning->hash = add_to_hash(tuning->hash, &algorithm->is_ours, sizeof(algorithm->is_ours));
    tuning->hash =
        add_to_hash(tuning->hash, &algorithm->of_cublaslt, sizeof(algorithm->of_cublaslt));
}

int cuda_tuning_fastest(struct cuda_backend *b, const struct cuda_tuned_product *tuned,
                        const struct cuda_algorithm algorithms[], int num_algorithms) {
    struct trial trial;
    if (b->tuning == NULL || num_algorithms < 2)
        return 0;
    CHECK(b->recording == NULL);
    int found =
        open_trial(b, tuned, algorithms, num_algorithms, &trial) ? find_fastest(b, &trial) : -1;
    close_trial(&trial);
    b->tuning->report.num_timed += found >= 0;
    b->tuning->report.num_left += found < 0;
    if (found > 0)
        count_change(b->tuning, tuned, &algorithms[found]);
    return found > 0 ? found : 0;
}
