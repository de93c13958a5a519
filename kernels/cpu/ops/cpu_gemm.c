/* One linear call: pack the activations as the formats of the matrix want them, then multiply.
 * Rows go in chunks of GEMM_CHUNK_ROWS, which bounds the scratch and lets a chunk's activations
 * stay in the second cache while the weights stream by once.
 *
 * Threads share the product by panels; a few rows are packed by the caller alone, which takes less
 * time than a barrier. Meanwhile, and wherever else they wait, threads prefetch the weights that
 * followed these the last time. */
#include "kernels/cpu/ops/cpu_gemm.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/numbers.h"
#include "kernels/cpu/memory/cpu_memory.h"

#include <stdlib.h>

#define PACK_ALONE_ITEMS 16384  /* activations that the caller packs by itself */
#define PACK_PORTION_ITEMS 4096 /* else: per portion */

struct weights_span {
    const void *data;
    size_t bytes;
};

/* GEMM_CHUNK_ROWS packed rows of the longest K so far, for each packing that a matrix wanted; and
 * the weights that were multiplied after those of each matrix, by its number. */
struct cpu_gemm_scratch {
    struct weights_span *followers; /* [num_matrices] */
    int32_t num_matrices, last;
    int num_areas;
    struct {
        const struct cpu_row_packing *packing;
        struct buffer rows;
    } areas[GEMM_MAX_PACKINGS];
};

int cpu_gemm_scratch_create(struct cpu_backend *b, struct error *err) {
    b->gemm_scratch = calloc(1, sizeof(*b->gemm_scratch));
    if (b->gemm_scratch == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the workspace of the product");
    return 0;
}

void cpu_gemm_scratch_destroy(struct cpu_backend *b) {
    if (b->gemm_scratch == NULL)
        return;
    for (int i = 0; i < b->gemm_scratch->num_areas; i++)
        cpu_memory_free(&b->gemm_scratch->areas[i].rows);
    free(b->gemm_scratch->followers);
    free(b->gemm_scratch);
    b->gemm_scratch = NULL;
}

static int grow(struct buffer *buffer, size_t row_bytes, struct error *err) {
    size_t bytes;
    if (!checked_mul(row_bytes, GEMM_CHUNK_ROWS, &bytes))
        return error_set(err, ERROR_MODEL, "a matrix row of %zu bytes is too long", row_bytes);
    if (buffer->bytes >= bytes)
        return 0;
    struct buffer grown;
    if (cpu_memory_alloc(bytes, &grown, err) != 0)
        return -1;
    cpu_memory_free(buffer);
    *buffer = grown;
    return 0;
}

/* The rows packed so, an empty buffer at first. */
static struct buffer *area_of(struct cpu_gemm_scratch *scratch,
                              const struct cpu_row_packing *packing) {
    int i = 0;
    while (i < scratch->num_areas && scratch->areas[i].packing != packing)
        i++;
    CHECK(i < GEMM_MAX_PACKINGS);
    if (i == scratch->num_areas) {
        scratch->areas[i].packing = packing;
        scratch->num_areas++;
    }
    return &scratch->areas[i].rows;
}

int cpu_gemm_scratch_reserve(struct cpu_backend *b, const struct cpu_row_packing *packing,
                             int32_t cols, struct error *err) {
    return grow(area_of(b->gemm_scratch, packing), packing->row_bytes((size_t)cols), err);
}

int cpu_gemm_number_matrix(struct cpu_backend *b, struct matrix *matrix, struct error *err) {
    struct cpu_gemm_scratch *scratch = b->gemm_scratch;
    size_t count = (size_t)scratch->num_matrices + 1;
    struct weights_span *grown = realloc(scratch->followers, count * sizeof(*grown));
    if (grown == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for %zu matrices", count);
    scratch->followers = grown;
    grown[count - 1] = (struct weights_span){0};
    matrix->number = scratch->num_matrices++;
    return 0;
}

uint8_t *cpu_gemm_packed_rows(struct cpu_backend *b, const struct cpu_row_packing *packing) {
    return area_of(b->gemm_scratch, packing)->data;
}

static void find_tile(const int32_t *tile_rows, int32_t num_rows, int32_t row, int32_t *out_begin,
                      int32_t *out_rows) {
    int32_t begin = 0, size = gemm_next_tile(tile_rows, num_rows);
    while (row >= begin + size) {
        begin += size;
        size = gemm_next_tile(tile_rows, num_rows - begin);
    }
    *out_begin = begin;
    *out_rows = size;
}

void cpu_gemm_pack_row(const struct cpu_row_packing *packing, const float *x, int32_t depth,
                       uint8_t *packed, int32_t num_rows, int32_t row) {
    int32_t tile_begin, tile_rows;
    find_tile(packing->tile_rows, num_rows, row, &tile_begin, &tile_rows);
    packing->pack(x, depth, packed + (size_t)tile_begin * packing->row_bytes((size_t)depth),
                  row - tile_begin, tile_rows);
}

int64_t cpu_gemm_pack_portion(int64_t num_rows, int64_t depth) {
    return num_rows * depth <= PACK_ALONE_ITEMS ? num_rows : PACK_PORTION_ITEMS / depth + 1;
}

/* Returns the number of columns. */
static int32_t multiply_segment(const struct gemm_product *product,
                                const struct matrix_segment *segment, int32_t begin, int32_t end,
                                float *out) {
    const struct matrix *matrix = product->matrix;
    int32_t first_column = begin * PANEL_COLUMNS;
    int32_t last_column = end * PANEL_COLUMNS;
    if (last_column > segment->num_rows)
        last_column = segment->num_rows;
    const uint8_t *following = segment->panels + (size_t)end * segment->panel_bytes;
    if (end == segment->num_panels && segment == product->segments + product->num_segments - 1)
        following = product->following;
    struct gemm_job job = {
        .panels = segment->panels + (size_t)begin * segment->panel_bytes,
        .following = following,
        .panel_bytes = segment->panel_bytes,
        .num_panels = end - begin,
        .num_columns = last_column - first_column,
        .depth = matrix->cols,
        .activations = product->packed[segment->packing],
        .num_rows = product->num_rows,
        .out = out,
        .out_stride = product->out_stride,
        .out_rows = product->out_rows,
        .bias = matrix->bias == NULL ? NULL : matrix->bias + segment->first_row + first_column,
        .scale = product->scale,
        .accumulate = product->accumulate,
    };
    segment->format->multiply(&job);
    return job.num_columns;
}

int32_t cpu_gemm_multiply(const struct gemm_product *product, int32_t begin, int32_t end) {
    const struct matrix_segment *first = product->segments;
    int32_t num_columns = 0;
    for (int i = 0; i < product->num_segments; i++) {
        const struct matrix_segment *segment = first + i;
        int32_t offset = segment->first_panel - first->first_panel;
        int32_t from = max_int32(begin - offset, 0);
        int32_t to = min_int32(end - offset, segment->num_panels);
        if (from < to)
            num_columns += multiply_segment(product, segment, from, to, product->out + num_columns);
    }
    return num_columns;
}

int32_t cpu_gemm_first_column(const struct gemm_product *product, int32_t panel) {
    const struct matrix_segment *first = product->segments, *segment = first;
    while (panel >= segment->first_panel - first->first_panel + segment->num_panels)
        segment++;
    return segment->first_row - first->first_row +
           (panel - (segment->first_panel - first->first_panel)) * PANEL_COLUMNS;
}

/* Steps take the matrices of a model in the same order: what followed this one the last time is
 * expected to follow it again. Only hints come of it, so weights that are gone may be named. */
void cpu_gemm_expect_next(struct cpu_backend *b, const struct matrix *matrix, const void *weights,
                          size_t bytes) {
    struct cpu_gemm_scratch *scratch = b->gemm_scratch;
    scratch->followers[scratch->last] = (struct weights_span){.data = weights, .bytes = bytes};
    scratch->last = matrix->number;
    const struct weights_span *next = &scratch->followers[matrix->number];
    thread_pool_expect(b->pool, next->data, next->bytes);
}

struct linear_job {
    struct gemm_product product;
    const float *x; /* this chunk's rows */
    uint8_t *packed[GEMM_MAX_PACKINGS];
};

static void pack_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct linear_job *job = context;
    const struct matrix *matrix = job->product.matrix;
    for (int i = 0; i < matrix->num_packings; i++)
        for (int32_t row = (int32_t)begin; row < end; row++)
            cpu_gemm_pack_row(matrix->packings[i], job->x + (size_t)row * (size_t)matrix->cols,
                              matrix->cols, job->packed[i], job->product.num_rows, row);
}

static void multiply_panels(void *context, int64_t begin, int64_t end, int worker) {
    struct gemm_product product = ((const struct linear_job *)context)->product;
    product.out += cpu_gemm_first_column(&product, (int32_t)begin);
    cpu_gemm_multiply(&product, (int32_t)begin, (int32_t)end);
}

static void run_chunk(struct cpu_backend *b, struct linear_job *job) {
    int64_t num_rows = job->product.num_rows, cols = job->product.matrix->cols;
    thread_pool_for(b->pool, num_rows, cpu_gemm_pack_portion(num_rows, cols), pack_rows, job);
    thread_pool_for(b->pool, job->product.matrix->num_panels, GEMM_PORTION_PANELS, multiply_panels,
                    job);
}

/* The segments' panels follow each other. */
static const uint8_t *panels_end(const struct matrix *matrix) {
    const struct matrix_segment *last = &matrix->segments[matrix->num_segments - 1];
    return last->panels + (size_t)last->num_panels * last->panel_bytes;
}

void cpu_linear(struct backend *base, const struct linear_args *args) {
    struct cpu_backend *b = (struct cpu_backend *)base;
    const struct matrix *matrix = args->weight;
    const uint8_t *panels = matrix->segments[0].panels, *end = panels_end(matrix);
    struct linear_job job = {.product = {.matrix = matrix,
                                         .segments = matrix->segments,
                                         .num_segments = matrix->num_segments,
                                         .following = end,
                                         .out_stride = (size_t)matrix->rows,
                                         .scale = args->scale,
                                         .accumulate = args->accumulate}};
    for (int i = 0; i < matrix->num_packings; i++)
        job.product.packed[i] = job.packed[i] = cpu_gemm_packed_rows(b, matrix->packings[i]);
    for (int32_t row = 0; row < args->num_rows; row += GEMM_CHUNK_ROWS) {
        int32_t left = args->num_rows - row;
        job.product.num_rows = min_int32(left, GEMM_CHUNK_ROWS);
        job.x = (const float *)args->x + (size_t)row * (size_t)matrix->cols;
        job.product.out = (float *)args->out + (size_t)row * (size_t)matrix->rows;
        if (left <= GEMM_CHUNK_ROWS)
            cpu_gemm_expect_next(b, matrix, panels, (size_t)(end - panels));
        run_chunk(b, &job);
    }
}
