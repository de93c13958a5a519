/* Memory of matrices, filled panel by panel (cpu_panel.h). Embed reads single rows back out of the
 * panels, so tied embeddings exist once. */
#include "config/base/check.h"
#include "config/base/checked.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/levels/cpu_gemm_format.h"
#include "kernels/cpu/levels/cpu_panel.h"
#include "kernels/matrix_part.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64
#define PACK_PORTION_PANELS 8
#define EMBED_PORTION_TOKENS 16

/* Rows first_row..last_row-1 of a segment, which may begin and end within a panel. */
struct pack_job {
    const struct matrix_segment *segment;
    int64_t first_row, last_row;
    const uint8_t *data; /* of first_row */
    size_t cols;
};

/* Panels are counted from the one that first_row is in. */
static void pack_panels(void *context, int64_t begin, int64_t end, int worker) {
    const struct pack_job *job = context;
    const struct matrix_segment *segment = job->segment;
    size_t row_bytes = dtype_row_bytes(segment->dtype, job->cols);
    int64_t first_panel = job->first_row / PANEL_COLUMNS;
    int64_t row = (first_panel + begin) * PANEL_COLUMNS;
    int64_t last_row = (first_panel + end) * PANEL_COLUMNS;
    row = row > job->first_row ? row : job->first_row;
    last_row = last_row < job->last_row ? last_row : job->last_row;
    while (row < last_row) {
        int64_t panel = row / PANEL_COLUMNS, next = (panel + 1) * PANEL_COLUMNS;
        next = next < last_row ? next : last_row;
        segment->format->panel->pack(
            segment->dtype, job->data + (size_t)(row - job->first_row) * row_bytes, row_bytes,
            job->cols, segment->panels + (size_t)panel * segment->panel_bytes,
            (size_t)(row % PANEL_COLUMNS), (size_t)(next - row));
        row = next;
    }
}

static bool segment_init(struct matrix_segment *segment, const struct matrix_part *part,
                         const struct cpu_gemm_format *format, size_t cols, size_t *bytes) {
    size_t panel_bytes, all_panels_bytes;
    size_t num_panels = ((size_t)part->rows + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    if (!checked_mul(format->panel->column_bytes(part->dtype, cols), PANEL_COLUMNS, &panel_bytes) ||
        !checked_add(panel_bytes, ALIGNMENT - 1, &panel_bytes))
        return false;
    panel_bytes -= panel_bytes % ALIGNMENT;
    segment->format = format;
    segment->dtype = part->dtype;
    segment->num_rows = part->rows;
    segment->num_panels = (int32_t)num_panels;
    segment->panel_bytes = panel_bytes;
    return checked_mul(panel_bytes, num_panels, &all_panels_bytes) &&
           checked_add(*bytes, all_panels_bytes, bytes);
}

/* Returns the number of a packing among those of the matrix. */
static int add_packing(struct matrix *matrix, const struct cpu_row_packing *packing) {
    int i = 0;
    while (i < matrix->num_packings && matrix->packings[i] != packing)
        i++;
    CHECK(i < GEMM_MAX_PACKINGS);
    if (i == matrix->num_packings)
        matrix->packings[matrix->num_packings++] = packing;
    return i;
}

/* Fills in everything but the panels' addresses. */
static int plan_segments(const struct cpu_backend *b, struct matrix *matrix,
                         const struct matrix_part *parts, size_t *out_bytes, struct error *err) {
    int64_t rows = 0, panels = 0;
    size_t bytes = 0;
    for (int i = 0; i < matrix->num_segments; i++) {
        struct matrix_segment *segment = &matrix->segments[i];
        if (matrix_part_check(&parts[i], matrix->cols, err) != 0)
            return -1;
        const struct cpu_gemm_format *format = b->kernels.formats[parts[i].dtype];
        if (!segment_init(segment, &parts[i], format, (size_t)matrix->cols, &bytes) ||
            rows + segment->num_rows > INT32_MAX)
            return error_set(err, ERROR_MODEL, "%s matrix of %d x %d: too large",
                             dtype_name(parts[i].dtype), parts[i].rows, matrix->cols);
        segment->packing = add_packing(matrix, format->rows);
        segment->first_row = (int32_t)rows;
        segment->first_panel = (int32_t)panels;
        rows += segment->num_rows;
        panels += segment->num_panels;
    }
    matrix->rows = (int32_t)rows;
    matrix->num_panels = (int32_t)panels;
    *out_bytes = bytes;
    return 0;
}

static void fill_bias(const struct matrix *matrix, const struct matrix_part *parts) {
    float *bias = matrix->bias;
    for (int i = 0; i < matrix->num_segments; i++) {
        size_t bytes = (size_t)parts[i].rows * sizeof(*bias);
        if (parts[i].bias != NULL)
            memcpy(bias, parts[i].bias, bytes);
        else
            memset(bias, 0, bytes);
        bias += parts[i].rows;
    }
}

/* A matrix of experts has hundreds. */
static const struct matrix_segment *segment_of(const struct matrix *matrix, int32_t row) {
    int low = 0, high = matrix->num_segments;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (matrix->segments[middle].first_row <= row)
            low = middle;
        else
            high = middle;
    }
    return &matrix->segments[low];
}

int cpu_matrix_fill(struct backend *b, struct matrix *matrix, int32_t first_row, int32_t num_rows,
                    const void *data, struct error *err) {
    CHECK(num_rows > 0 && first_row >= 0 && first_row < matrix->rows);
    const struct matrix_segment *segment = segment_of(matrix, first_row);
    int64_t first = first_row - segment->first_row, last = first + num_rows;
    CHECK(last <= segment->num_rows);
    struct pack_job job = {segment, first, last, data, (size_t)matrix->cols};
    int64_t num_panels = (last - 1) / PANEL_COLUMNS - first / PANEL_COLUMNS + 1;
    thread_pool_for(((struct cpu_backend *)b)->pool, num_panels, PACK_PORTION_PANELS, pack_panels,
                    &job);
    return 0;
}

static int fill_segments(struct cpu_backend *b, struct matrix *matrix,
                         const struct matrix_part *parts, struct error *err) {
    for (int i = 0; i < matrix->num_segments; i++)
        if (parts[i].data != NULL &&
            cpu_matrix_fill(&b->base, matrix, matrix->segments[i].first_row, parts[i].rows,
                            parts[i].data, err) != 0)
            return -1;
    return 0;
}

/* Memory for all segments, unless `packed` is theirs, and what is known of them. */
static int matrix_init(struct cpu_backend *b, struct matrix *matrix,
                       const struct matrix_part *parts, const struct packed_bytes *packed,
                       struct error *err) {
    size_t bytes = 0;
    if (plan_segments(b, matrix, parts, &bytes, err) != 0 ||
        cpu_gemm_number_matrix(b, matrix, err) != 0)
        return -1;
    if (packed != NULL && packed->bytes != bytes)
        return error_set(err, ERROR_MODEL, "matrix of %d x %d: has %zu packed bytes, not %zu",
                         matrix->rows, matrix->cols, bytes, packed->bytes);
    for (int i = 0; i < matrix->num_packings; i++)
        if (cpu_gemm_scratch_reserve(b, matrix->packings[i], matrix->cols, err) != 0)
            return -1;
    bool biased = matrix_part_any_biased(parts, matrix->num_segments);
    bytes = packed != NULL ? 0 : bytes;
    if (biased && !checked_add(bytes, (size_t)matrix->rows * sizeof(float), &bytes))
        return error_set(err, ERROR_MODEL, "matrix of %d x %d: too large", matrix->rows,
                         matrix->cols);
    if (bytes > 0 && cpu_arena_alloc(&b->weights, bytes, &matrix->memory, err) != 0)
        return -1;
    uint8_t *next = packed != NULL ? packed->data : matrix->memory.data;
    for (int i = 0; i < matrix->num_segments; i++) {
        struct matrix_segment *segment = &matrix->segments[i];
        segment->panels = next;
        next += (size_t)segment->num_panels * segment->panel_bytes;
    }
    if (biased) {
        matrix->bias = packed != NULL ? matrix->memory.data : (float *)(void *)next;
        fill_bias(matrix, parts);
    }
    return 0;
}

/* packed NULL: the panels are in memory of its own, and filled with what the parts have. */
static int create(struct cpu_backend *b, const struct matrix_part *parts, int num_parts,
                  int32_t cols, const struct packed_bytes *packed, struct matrix **out,
                  struct error *err) {
    CHECK(num_parts > 0);
    struct matrix *matrix =
        calloc(1, sizeof(*matrix) + (size_t)num_parts * sizeof(matrix->segments[0]));
    if (matrix == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a matrix of %d parts", num_parts);
    matrix->cols = cols;
    matrix->num_segments = num_parts;
    if (matrix_init(b, matrix, parts, packed, err) != 0 ||
        (packed == NULL && fill_segments(b, matrix, parts, err) != 0)) {
        cpu_matrix_destroy(&b->base, matrix);
        return -1;
    }
    *out = matrix;
    return 0;
}

int cpu_matrix_create(struct backend *b, const struct matrix_part *parts, int num_parts,
                      int32_t cols, enum matrix_use use, struct matrix **out, struct error *err) {
    return create((struct cpu_backend *)b, parts, num_parts, cols, NULL, out, err);
}

static int map_matrix(struct backend *b, const struct matrix_part *parts, int num_parts,
                      int32_t cols, struct packed_bytes packed, struct matrix **out,
                      struct error *err) {
    CHECK((uintptr_t)packed.data % PACKED_ALIGNMENT == 0);
    return create((struct cpu_backend *)b, parts, num_parts, cols, &packed, out, err);
}

static struct packed_bytes bytes_of(const struct matrix *matrix) {
    struct packed_bytes packed = {.data = matrix->segments[0].panels};
    for (int i = 0; i < matrix->num_segments; i++)
        packed.bytes += (size_t)matrix->segments[i].num_panels * matrix->segments[i].panel_bytes;
    return packed;
}

static void write_layouts(const struct backend *b, char out[DTYPE_COUNT + 1]) {
    static const struct cpu_panel_layout *const layouts[] = {
        &cpu_panel_elements, &cpu_panel_pairs, &cpu_panel_blocks, &cpu_panel_file_blocks};
    const struct cpu_kernels *kernels = &((const struct cpu_backend *)b)->kernels;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        const struct cpu_gemm_format *format = kernels->formats[type];
        char name = '-';
        for (int i = 0; i < 4 && format != NULL; i++)
            name = format->panel == layouts[i] ? "epbf"[i] : name;
        out[type] = name;
    }
    out[DTYPE_COUNT] = '\0';
}

const struct packing_ops cpu_matrix_packing = {
    .layouts = write_layouts, .bytes_of = bytes_of, .matrix_map = map_matrix};

void cpu_matrix_destroy(struct backend *b, struct matrix *matrix) {
    if (matrix == NULL)
        return;
    cpu_arena_free(&((struct cpu_backend *)b)->weights, &matrix->memory);
    free(matrix);
}

static void embed_row(const struct matrix *matrix, int32_t row, float *out) {
    const struct matrix_segment *segment = segment_of(matrix, row);
    size_t index = (size_t)(row - segment->first_row);
    segment->format->panel->unpack(segment->dtype,
                                   segment->panels + index / PANEL_COLUMNS * segment->panel_bytes,
                                   (size_t)matrix->cols, index % PANEL_COLUMNS, out);
}

struct embed_job {
    const struct matrix *table;
    const struct step_inputs *step;
    const struct buffer *sampled_tokens;
    float *out;
    int32_t first_row;
    float scale;
};

static void embed_tokens(void *context, int64_t begin, int64_t end, int worker) {
    const struct embed_job *job = context;
    size_t cols = (size_t)job->table->cols;
    for (int64_t t = begin; t < end; t++) {
        float *out = job->out + (size_t)t * cols;
        int32_t row = cpu_token_id(job->step, job->sampled_tokens, t) - job->first_row;
        if (row < 0 || row >= job->table->rows) {
            memset(out, 0, cols * sizeof(float));
            continue;
        }
        embed_row(job->table, row, out);
        for (size_t i = 0; i < cols; i++)
            out[i] *= job->scale;
    }
}

void cpu_embed(struct backend *base, const struct embed_args *args) {
    struct cpu_backend *b = (struct cpu_backend *)base;
    struct embed_job job = {.table = args->table,
                            .step = &b->step,
                            .sampled_tokens = &b->sampled_tokens,
                            .out = args->out,
                            .first_row = args->first_row,
                            .scale = args->scale};
    thread_pool_for(b->pool, b->step.num_tokens, EMBED_PORTION_TOKENS, embed_tokens, &job);
}
