/* One linear call: pack the activations as the formats of the matrix want them, then multiply.
 * Rows go in chunks of CHUNK_ROWS, which bounds the scratch and lets a chunk's activations stay in
 * the second cache while the weights stream by once.
 *
 * Threads share the product by panels; a few rows are packed by the caller alone, which takes less
 * time than a barrier. Meanwhile, and wherever else they wait, threads prefetch the weights that
 * followed these the last time. */
#include "config/base/check.h"
#include "config/base/checked.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/levels/cpu_gemm_format.h"
#include "kernels/cpu/memory/cpu_memory.h"

#include <stdlib.h>

#define CHUNK_ROWS 192          /* whole tiles of every packing */
#define PORTION_PANELS 4        /* that a thread takes at a time */
#define PACK_ALONE_ITEMS 16384  /* activations that the caller packs by itself */
#define PACK_PORTION_ITEMS 4096 /* else: per portion */

struct weights_span {
    const void *data;
    size_t bytes;
};

/* CHUNK_ROWS packed rows of the longest K so far, for each packing that a matrix wanted; and the
 * weights that were multiplied after those of each matrix, by its number. */
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
    if (!checked_mul(row_bytes, CHUNK_ROWS, &bytes))
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

struct linear_job {
    const struct matrix *matrix;
    const float *x; /* this chunk's rows */
    float *out;
    int32_t num_rows;
    float scale;
    bool accumulate;
    uint8_t *packed[GEMM_MAX_PACKINGS]; /* rows, by the matrix's packings */
};

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

static void pack_row(const struct linear_job *job, int packing, int32_t row) {
    const struct cpu_row_packing *p = job->matrix->packings[packing];
    int32_t depth = job->matrix->cols, tile_begin, tile_rows;
    find_tile(p->tile_rows, job->num_rows, row, &tile_begin, &tile_rows);
    p->pack(job->x + (size_t)row * (size_t)depth, depth,
            job->packed[packing] + (size_t)tile_begin * p->row_bytes((size_t)depth),
            row - tile_begin, tile_rows);
}

static void pack_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct linear_job *job = context;
    for (int i = 0; i < job->matrix->num_packings; i++)
        for (int32_t row = (int32_t)begin; row < end; row++)
            pack_row(job, i, row);
}

static void multiply_segment(const struct linear_job *job, const struct matrix_segment *segment,
                             int32_t begin, int32_t end) {
    int32_t first_column = begin * PANEL_COLUMNS;
    int32_t last_column = end * PANEL_COLUMNS;
    if (last_column > segment->num_rows)
        last_column = segment->num_rows;
    struct gemm_job product = {
        .panels = segment->panels + (size_t)begin * segment->panel_bytes,
        .panel_bytes = segment->panel_bytes,
        .num_panels = end - begin,
        .num_columns = last_column - first_column,
        .depth = job->matrix->cols,
        .activations = job->packed[segment->packing],
        .num_rows = job->num_rows,
        .out = job->out + segment->first_row + first_column,
        .out_stride = (size_t)job->matrix->rows,
        .bias = job->matrix->bias == NULL ? NULL
                                          : job->matrix->bias + segment->first_row + first_column,
        .scale = job->scale,
        .accumulate = job->accumulate,
    };
    segment->format->multiply(&product);
}

/* Panels begin..end-1 counted over the matrix, which may lie in several segments. */
static void multiply_panels(void *context, int64_t begin, int64_t end, int worker) {
    const struct linear_job *job = context;
    for (int i = 0; i < job->matrix->num_segments; i++) {
        const struct matrix_segment *segment = &job->matrix->segments[i];
        int64_t first = begin - segment->first_panel;
        int64_t last = end - segment->first_panel;
        first = first > 0 ? first : 0;
        last = last < segment->num_panels ? last : segment->num_panels;
        if (first < last)
            multiply_segment(job, segment, (int32_t)first, (int32_t)last);
    }
}

static void run_chunk(struct cpu_backend *b, struct linear_job *job) {
    int64_t cols = job->matrix->cols;
    int64_t portion =
        job->num_rows * cols <= PACK_ALONE_ITEMS ? job->num_rows : PACK_PORTION_ITEMS / cols + 1;
    thread_pool_for(b->pool, job->num_rows, portion, pack_rows, job);
    thread_pool_for(b->pool, job->matrix->num_panels, PORTION_PANELS, multiply_panels, job);
}

/* Steps take the matrices of a model in the same order: what followed this one the last time is
 * expected to follow it again. Only hints come of it, so weights that are gone may be named. */
static void expect_next(struct cpu_backend *b, const struct matrix *matrix) {
    struct cpu_gemm_scratch *scratch = b->gemm_scratch;
    size_t bytes = 0;
    for (int i = 0; i < matrix->num_segments; i++)
        bytes += (size_t)matrix->segments[i].num_panels * matrix->segments[i].panel_bytes;
    scratch->followers[scratch->last] =
        (struct weights_span){.data = matrix->segments[0].panels, .bytes = bytes};
    scratch->last = matrix->number;
    const struct weights_span *next = &scratch->followers[matrix->number];
    thread_pool_expect(b->pool, next->data, next->bytes);
}

void cpu_linear(struct backend *base, const struct linear_args *args) {
    struct cpu_backend *b = (struct cpu_backend *)base;
    const struct matrix *matrix = args->weight;
    struct linear_job job = {
        .matrix = matrix, .scale = args->scale, .accumulate = args->accumulate};
    for (int i = 0; i < matrix->num_packings; i++)
        job.packed[i] = area_of(b->gemm_scratch, matrix->packings[i])->data;
    for (int32_t row = 0; row < args->num_rows; row += CHUNK_ROWS) {
        int32_t left = args->num_rows - row;
        job.num_rows = left < CHUNK_ROWS ? left : CHUNK_ROWS;
        job.x = (const float *)args->x + (size_t)row * (size_t)matrix->cols;
        job.out = (float *)args->out + (size_t)row * (size_t)matrix->rows;
        if (left <= CHUNK_ROWS)
            expect_next(b, matrix);
        run_chunk(b, &job);
    }
}
