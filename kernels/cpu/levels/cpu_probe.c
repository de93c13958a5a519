#include "kernels/cpu/levels/cpu_probe.h"

#include "kernels/cpu/levels/cpu_gemm_format.h"
#include "kernels/cpu/levels/cpu_probe_private.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEPTH 256 /* a multiple of every type's block */
#define NUM_ROWS 48
#define NUM_PANELS 4
#define NUM_COLUMNS (NUM_PANELS * PANEL_COLUMNS)
#define ALIGNMENT 64
#define BYTE_OF_WEIGHTS 0x3c /* makes every type's numbers, f16 factors and codes ordinary ones */

struct trial {
    const struct cpu_gemm_format *format;
    struct gemm_job job;
    void *panels, *activations;
    double best; /* seconds */
};

static void *allocate(size_t bytes) {
    void *memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (memory != NULL)
        memset(memory, 0, bytes);
    return memory;
}

static void pack_weights(struct trial *trial, enum dtype dtype, const uint8_t *row) {
    for (size_t panel = 0; panel < NUM_PANELS; panel++)
        for (size_t column = 0; column < PANEL_COLUMNS; column++)
            trial->format->panel->pack(dtype, row, 0, DEPTH,
                                       (uint8_t *)trial->panels + panel * trial->job.panel_bytes,
                                       column, 1);
}

static void pack_activations(struct trial *trial, const float *x, int32_t tile_rows) {
    const struct cpu_row_packing *rows = trial->format->rows;
    for (int32_t row = 0; row < trial->job.num_rows; row++)
        rows->pack(x, DEPTH,
                   (uint8_t *)trial->activations +
                       (size_t)(row / tile_rows * tile_rows) * rows->row_bytes(DEPTH),
                   row % tile_rows, tile_rows);
}

/* Rows of the tile that a single row is packed into, as cpu_gemm.c does. */
static int32_t smallest_tile(const struct cpu_row_packing *rows) {
    const int32_t *size = rows->tile_rows;
    while (size + 1 < rows->tile_rows + GEMM_MAX_TILES && size[1] != 0)
        size++;
    return *size;
}

/* One row, or whole tiles of the most rows, as far as max_rows holds them; there is memory for
 * NUM_ROWS, since a tile that is not full takes that of a full one. */
static bool trial_init(struct trial *trial, const struct cpu_gemm_format *format, enum dtype dtype,
                       int32_t max_rows, const uint8_t *row, const float *x, float *out) {
    int32_t tile_rows = max_rows == 1 ? smallest_tile(format->rows) : format->rows->tile_rows[0];
    size_t panel_bytes = format->panel->column_bytes(dtype, DEPTH) * PANEL_COLUMNS;
    *trial = (struct trial){.format = format,
                            .panels = allocate(NUM_PANELS * panel_bytes),
                            .activations = allocate(NUM_ROWS * format->rows->row_bytes(DEPTH)),
                            .best = 1e9};
    if (trial->panels == NULL || trial->activations == NULL)
        return false;
    trial->job = (struct gemm_job){.panels = trial->panels,
                                   .following = trial->panels,
                                   .panel_bytes = panel_bytes,
                                   .num_panels = NUM_PANELS,
                                   .num_columns = NUM_COLUMNS,
                                   .depth = DEPTH,
                                   .activations = trial->activations,
                                   .num_rows = max_rows == 1 ? 1 : max_rows / tile_rows * tile_rows,
                                   .out = out,
                                   .out_stride = NUM_COLUMNS,
                                   .scale = 1};
    pack_weights(trial, dtype, row);
    pack_activations(trial, x, tile_rows);
    return true;
}

static void trial_finish(struct trial *trial) {
    free(trial->panels);
    free(trial->activations);
}

double probe_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run(struct trial *trial) {
    double start = probe_now();
    trial->format->multiply(&trial->job);
    double seconds = (probe_now() - start) / trial->job.num_rows;
    if (seconds < trial->best)
        trial->best = seconds;
}

static bool is_faster(enum dtype dtype, const struct cpu_gemm_format *format,
                      const struct cpu_gemm_format *other, int32_t max_rows, double margin) {
    float x[DEPTH], out[NUM_ROWS * NUM_COLUMNS];
    uint8_t row[DEPTH * sizeof(float)];
    struct trial a = {0}, b = {0};
    memset(row, BYTE_OF_WEIGHTS, sizeof(row));
    for (int k = 0; k < DEPTH; k++)
        x[k] = (float)(k % 7 - 3);
    bool is_ready = trial_init(&a, format, dtype, max_rows, row, x, out);
    is_ready = trial_init(&b, other, dtype, max_rows, row, x, out) && is_ready;
    for (int i = 0; is_ready && i < PROBE_RUNS; i++) {
        run(&a);
        run(&b);
    }
    trial_finish(&a);
    trial_finish(&b);
    return is_ready && a.best * margin <= b.best;
}

bool cpu_probe_is_faster(enum dtype dtype, const struct cpu_gemm_format *format,
                         const struct cpu_gemm_format *other) {
    return is_faster(dtype, format, other, NUM_ROWS, PROBE_MARGIN) &&
           is_faster(dtype, format, other, 1, PROBE_ROW_MARGIN);
}
