/* Weights from the file's form into panels (cpu_gemm.h) and, for embed, single rows back out of
 * them; so tied embeddings exist once. A row read back has the exact values of dtype_to_f32. */
#include "config/check.h"
#include "config/checked.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/cpu/cpu_gemm_scratch.h"
#include "kernels/matrix_part.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64
#define PACK_PORTION_PANELS 8
#define EMBED_PORTION_TOKENS 16

/* How one quantised type is stored: in the file [f16 scales][codes], see dtype.h. */
struct block_form {
    size_t code_bytes; /* of a block of one column */
    size_t num_scales;
};

static struct block_form form_of(enum dtype dtype) {
    return (struct block_form){.code_bytes = dtype == DTYPE_Q8_0 ? GEMM_BLOCK : GEMM_BLOCK / 2,
                               .num_scales = dtype == DTYPE_Q4_1 ? 2 : 1};
}

/* Where block b of a column's codes, in groups of four bytes 64 bytes apart, and its first scale
 * lie in a panel. */
struct block_place {
    uint8_t *codes;
    uint8_t *scales;
};

static struct block_place place_of(enum dtype dtype, uint8_t *panel, size_t num_blocks, size_t b,
                                   size_t column) {
    struct block_form form = form_of(dtype);
    uint8_t *scales = panel + num_blocks * form.code_bytes * GEMM_PANEL_COLUMNS;
    return (struct block_place){
        .codes = panel + b * form.code_bytes * GEMM_PANEL_COLUMNS + 4 * column,
        .scales = scales + 2 * (b * form.num_scales * GEMM_PANEL_COLUMNS + column),
    };
}

/* The file's block has element i in the low and i + 16 in the high nibble of byte i. */
static void pack_nibbles(const uint8_t *src, uint8_t *dst) {
    uint8_t codes[GEMM_BLOCK];
    for (int i = 0; i < 16; i++) {
        codes[i] = src[i] & 15;
        codes[i + 16] = src[i] >> 4;
    }
    for (int g = 0; g < 4; g++)
        for (int t = 0; t < 4; t++)
            dst[64 * g + t] = (uint8_t)(codes[8 * g + t] | codes[8 * g + 4 + t] << 4);
}

static void unpack_nibbles(const uint8_t *src, uint8_t *dst) {
    for (int g = 0; g < 4; g++)
        for (int t = 0; t < 4; t++) {
            int i = 8 * g + t;
            uint8_t both = src[64 * g + t];
            dst[i % 16] |= (uint8_t)((both & 15) << (i < 16 ? 0 : 4));
            dst[(i + 4) % 16] |= (uint8_t)((both >> 4) << (i < 16 ? 0 : 4));
        }
}

/* Signed codes are kept plus 128, which flips their top bit. */
static void pack_bytes(const uint8_t *src, uint8_t *dst) {
    for (int i = 0; i < GEMM_BLOCK; i++)
        dst[64 * (i / 4) + i % 4] = src[i] ^ 0x80;
}

static void unpack_bytes(const uint8_t *src, uint8_t *dst) {
    for (int i = 0; i < GEMM_BLOCK; i++)
        dst[i] = src[64 * (i / 4) + i % 4] ^ 0x80;
}

static void pack_quantised_column(enum dtype dtype, const uint8_t *src, size_t num_blocks,
                                  uint8_t *panel, size_t column) {
    struct block_form form = form_of(dtype);
    for (size_t b = 0; b < num_blocks; b++, src += dtype_block_bytes(dtype)) {
        struct block_place place = place_of(dtype, panel, num_blocks, b, column);
        for (size_t s = 0; s < form.num_scales; s++)
            memcpy(place.scales + 2 * s * GEMM_PANEL_COLUMNS, src + 2 * s, 2);
        if (dtype == DTYPE_Q8_0)
            pack_bytes(src + 2 * form.num_scales, place.codes);
        else
            pack_nibbles(src + 2 * form.num_scales, place.codes);
    }
}

static void embed_quantised(const struct matrix_segment *segment, uint8_t *panel, size_t column,
                            size_t num_blocks, float *out) {
    struct block_form form = form_of(segment->dtype);
    for (size_t b = 0; b < num_blocks; b++, out += GEMM_BLOCK) {
        struct block_place place = place_of(segment->dtype, panel, num_blocks, b, column);
        uint8_t block[2 * 2 + GEMM_BLOCK] = {0};
        for (size_t s = 0; s < form.num_scales; s++)
            memcpy(block + 2 * s, place.scales + 2 * s * GEMM_PANEL_COLUMNS, 2);
        if (segment->dtype == DTYPE_Q8_0)
            unpack_bytes(place.codes, block + 2 * form.num_scales);
        else
            unpack_nibbles(place.codes, block + 2 * form.num_scales);
        dtype_to_f32(segment->dtype, block, out, GEMM_BLOCK);
    }
}

static void pack_plain_column(size_t item_bytes, const uint8_t *src, size_t depth, uint8_t *panel,
                              size_t column) {
    for (size_t k = 0; k < depth; k++)
        memcpy(panel + (k * GEMM_PANEL_COLUMNS + column) * item_bytes, src + k * item_bytes,
               item_bytes);
}

static void embed_plain(const struct matrix_segment *segment, const uint8_t *panel, size_t column,
                        size_t depth, float *out) {
    size_t item_bytes = dtype_block_bytes(segment->dtype);
    for (size_t k = 0; k < depth; k++)
        dtype_to_f32(segment->dtype, panel + (k * GEMM_PANEL_COLUMNS + column) * item_bytes,
                     out + k, 1);
}

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
    int64_t first_panel = job->first_row / GEMM_PANEL_COLUMNS;
    int64_t row = (first_panel + begin) * GEMM_PANEL_COLUMNS;
    int64_t last_row = (first_panel + end) * GEMM_PANEL_COLUMNS;
    row = row > job->first_row ? row : job->first_row;
    last_row = last_row < job->last_row ? last_row : job->last_row;
    for (; row < last_row; row++) {
        uint8_t *panel =
            segment->panels + (size_t)(row / GEMM_PANEL_COLUMNS) * segment->panel_bytes;
        const uint8_t *src = job->data + (size_t)(row - job->first_row) * row_bytes;
        size_t column = (size_t)row % GEMM_PANEL_COLUMNS;
        if (dtype_is_quantised(segment->dtype))
            pack_quantised_column(segment->dtype, src, job->cols / GEMM_BLOCK, panel, column);
        else
            pack_plain_column(dtype_block_bytes(segment->dtype), src, job->cols, panel, column);
    }
}

static bool segment_init(struct matrix_segment *segment, const struct matrix_part *part,
                         size_t cols, size_t *bytes) {
    size_t panel_bytes, all_panels_bytes;
    size_t num_panels = ((size_t)part->rows + GEMM_PANEL_COLUMNS - 1) / GEMM_PANEL_COLUMNS;
    if (!checked_mul(dtype_row_bytes(part->dtype, cols), GEMM_PANEL_COLUMNS, &panel_bytes) ||
        !checked_add(panel_bytes, ALIGNMENT - 1, &panel_bytes))
        return false;
    panel_bytes -= panel_bytes % ALIGNMENT;
    segment->dtype = part->dtype;
    segment->num_rows = part->rows;
    segment->num_panels = (int32_t)num_panels;
    segment->panel_bytes = panel_bytes;
    return checked_mul(panel_bytes, num_panels, &all_panels_bytes) &&
           checked_add(*bytes, all_panels_bytes, bytes);
}

/* Fills in everything but the panels' addresses. */
static int plan_segments(const struct cpu_gemm_kernels *kernels, struct matrix *matrix,
                         const struct matrix_part *parts, size_t *out_bytes, struct error *err) {
    int64_t rows = 0, panels = 0;
    size_t bytes = 0;
    for (int i = 0; i < matrix->num_segments; i++) {
        struct matrix_segment *segment = &matrix->segments[i];
        if (matrix_part_check(&parts[i], matrix->cols, err) != 0)
            return -1;
        if (kernels->multiply[parts[i].dtype] == NULL)
            return error_set(err, ERROR_MODEL, "%s matrix of %d x %d: the CPU has no kernel for it",
                             dtype_name(parts[i].dtype), parts[i].rows, matrix->cols);
        if (!segment_init(segment, &parts[i], (size_t)matrix->cols, &bytes) ||
            rows + segment->num_rows > INT32_MAX)
            return error_set(err, ERROR_MODEL, "%s matrix of %d x %d: too large",
                             dtype_name(parts[i].dtype), parts[i].rows, matrix->cols);
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

static const struct matrix_segment *segment_of(const struct matrix *matrix, int32_t row) {
    const struct matrix_segment *segment = matrix->segments;
    while (row >= segment->first_row + segment->num_rows)
        segment++;
    return segment;
}

int cpu_matrix_fill(struct backend *b, struct matrix *matrix, int32_t first_row, int32_t num_rows,
                    const void *data, struct error *err) {
    CHECK(num_rows > 0 && first_row >= 0 && first_row < matrix->rows);
    const struct matrix_segment *segment = segment_of(matrix, first_row);
    int64_t first = first_row - segment->first_row, last = first + num_rows;
    CHECK(last <= segment->num_rows);
    struct pack_job job = {segment, first, last, data, (size_t)matrix->cols};
    int64_t num_panels = (last - 1) / GEMM_PANEL_COLUMNS - first / GEMM_PANEL_COLUMNS + 1;
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

/* Memory for all segments, and what is known of them. */
static int matrix_init(struct cpu_backend *b, struct matrix *matrix,
                       const struct matrix_part *parts, struct error *err) {
    size_t bytes = 0;
    if (plan_segments(b->gemm, matrix, parts, &bytes, err) != 0)
        return -1;
    for (int i = 0; i < matrix->num_segments; i++)
        if (cpu_gemm_scratch_reserve(b, parts[i].dtype, matrix->cols, err) != 0)
            return -1;
    bool biased = matrix_part_any_biased(parts, matrix->num_segments);
    if (biased && !checked_add(bytes, (size_t)matrix->rows * sizeof(float), &bytes))
        return error_set(err, ERROR_MODEL, "matrix of %d x %d: too large", matrix->rows,
                         matrix->cols);
    if (cpu_arena_alloc(&b->weights, bytes, &matrix->memory, err) != 0)
        return -1;
    uint8_t *next = matrix->memory.data;
    for (int i = 0; i < matrix->num_segments; i++) {
        struct matrix_segment *segment = &matrix->segments[i];
        segment->panels = next;
        next += (size_t)segment->num_panels * segment->panel_bytes;
    }
    if (biased) {
        matrix->bias = (float *)(void *)next;
        fill_bias(matrix, parts);
    }
    return 0;
}

int cpu_matrix_create(struct backend *base, const struct matrix_part *parts, int num_parts,
                      int32_t cols, struct matrix **out, struct error *err) {
    CHECK(num_parts > 0);
    struct matrix *matrix =
        calloc(1, sizeof(*matrix) + (size_t)num_parts * sizeof(matrix->segments[0]));
    if (matrix == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a matrix of %d parts", num_parts);
    matrix->cols = cols;
    matrix->num_segments = num_parts;
    struct cpu_backend *b = (struct cpu_backend *)base;
    if (matrix_init(b, matrix, parts, err) != 0 || fill_segments(b, matrix, parts, err) != 0) {
        cpu_matrix_destroy(base, matrix);
        return -1;
    }
    *out = matrix;
    return 0;
}

void cpu_matrix_destroy(struct backend *b, struct matrix *matrix) {
    if (matrix == NULL)
        return;
    cpu_arena_free(&((struct cpu_backend *)b)->weights, &matrix->memory);
    free(matrix);
}

static void embed_row(const struct matrix *matrix, int32_t row, float *out) {
    const struct matrix_segment *segment = segment_of(matrix, row);
    size_t index = (size_t)(row - segment->first_row);
    uint8_t *panel = segment->panels + index / GEMM_PANEL_COLUMNS * segment->panel_bytes;
    size_t column = index % GEMM_PANEL_COLUMNS, cols = (size_t)matrix->cols;
    if (dtype_is_quantised(segment->dtype))
        embed_quantised(segment, panel, column, cols / GEMM_BLOCK, out);
    else
        embed_plain(segment, panel, column, cols, out);
}

struct embed_job {
    const struct matrix *table;
    const int32_t *token_ids;
    float *out;
    float scale;
};

static void embed_tokens(void *context, int64_t begin, int64_t end, int worker) {
    const struct embed_job *job = context;
    size_t cols = (size_t)job->table->cols;
    for (int64_t t = begin; t < end; t++) {
        float *out = job->out + (size_t)t * cols;
        embed_row(job->table, job->token_ids[t], out);
        for (size_t i = 0; i < cols; i++)
            out[i] *= job->scale;
    }
}

void cpu_embed(struct backend *base, const struct embed_args *args) {
    struct cpu_backend *b = (struct cpu_backend *)base;
    struct embed_job job = {args->table, b->step.token_ids, args->out, args->scale};
    thread_pool_for(b->pool, b->step.num_tokens, EMBED_PORTION_TOKENS, embed_tokens, &job);
}
