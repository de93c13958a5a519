/* Writes a planned conversion: reads some rows of a tensor, converts each by any thread, writes
 * them. */
#include "models/convert/conversion_private.h"

#include "config/base/numbers.h"
#include "kernels/thread_pool.h"
#include "models/files/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PART_BYTES ((size_t)16 << 20) /* of rows that are in memory at a time, at least one row */
#define GRAIN_ELEMENTS ((size_t)16384)
#define F16_LARGEST 65504.0F

/* --- The file --- */

struct output {
    const char *path;
    char partial[PATH_MAX];
    int fd;
    uint64_t position;
};

static int fail(const struct output *output, const char *what, struct error *err) {
    return error_set(err, ERROR_IO, "%s: cannot %s: %s", output->partial, what, strerror(errno));
}

static int check_space(const struct output *output, uint64_t bytes, struct error *err) {
    struct statvfs volume;
    if (fstatvfs(output->fd, &volume) != 0)
        return 0;
    uint64_t available = (uint64_t)volume.f_bavail * volume.f_frsize;
    if (available >= bytes)
        return 0;
    return error_set(err, ERROR_IO, "%s: needs %.1f MiB, and %.1f MiB are free there", output->path,
                     (double)bytes / 1048576.0, (double)available / 1048576.0);
}

static int open_output(const char *path, uint64_t bytes, struct output *out, struct error *err) {
    *out = (struct output){.path = path};
    if (snprintf(out->partial, sizeof(out->partial), "%s.partial-%ld", path, (long)getpid()) >=
        PATH_MAX)
        return error_set(err, ERROR_CONFIG, "%.200s...: the path is too long", path);
    out->fd = open(out->partial, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (out->fd < 0)
        return fail(out, "create", err);
    if (check_space(out, bytes, err) == 0)
        return 0;
    close(out->fd);
    unlink(out->partial);
    return -1;
}

static int put(struct output *output, const void *data, size_t bytes, struct error *err) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t written =
            pwrite(output->fd, at, min_size(bytes, SSIZE_MAX / 2), (off_t)output->position);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return fail(output, "write", err);
        at += written;
        bytes -= (size_t)written;
        output->position += (uint64_t)written;
    }
    return 0;
}

static int close_output(struct output *output, int status, struct error *err) {
    if (status == 0 && fsync(output->fd) != 0)
        status = fail(output, "write", err);
    if (close(output->fd) != 0 && status == 0)
        status = fail(output, "write", err);
    if (status == 0 && rename(output->partial, output->path) != 0)
        status = fail(output, "rename", err);
    if (status != 0)
        unlink(output->partial);
    return status;
}

/* --- Rows --- */

struct run {
    struct conversion *c;
    struct output output;
    struct thread_pool *pool;
    const struct conversion_watcher *watcher;
    uint64_t bytes_done, num_bytes;
    uint64_t data_begin; /* in the file */
};

/* A part of a tensor: rows [first, first + count). */
struct part {
    const struct planned_tensor *planned;
    size_t cols, rows_per_matrix;
    size_t first, src_row_bytes, dst_row_bytes;
    const uint8_t *src;
    uint8_t *dst;
    float *scratch;          /* [threads][cols] */
    const float *importance; /* [matrices][cols]; NULL: none */
    atomic_bool failed;
};

static bool are_representable(const float *values, size_t n, enum dtype dtype) {
    float largest = dtype == DTYPE_F16 ? F16_LARGEST : INFINITY;
    bool fine = true;
    for (size_t i = 0; i < n; i++)
        fine = fine && fabsf(values[i]) <= largest && fabsf(values[i]) < INFINITY;
    return fine;
}

static void convert_rows(void *context, int64_t begin, int64_t end, int worker) {
    struct part *part = context;
    const struct planned_tensor *planned = part->planned;
    enum dtype from = planned->tensor.from, to = planned->tensor.info.dtype;
    float *values = part->scratch + (size_t)worker * part->cols;
    for (int64_t row = begin; row < end; row++) {
        uint8_t *dst = part->dst + (size_t)row * part->dst_row_bytes;
        size_t matrix = (part->first + (size_t)row) / part->rows_per_matrix;
        if (from == to && dtype_is_quantised(to)) {
            memcpy(dst, part->src + (size_t)row * part->src_row_bytes, part->dst_row_bytes);
            continue;
        }
        dtype_to_f32(from, part->src + (size_t)row * part->src_row_bytes, values, part->cols);
        for (size_t i = 0; i < part->cols && planned->plus_one; i++)
            values[i] += 1.0F;
        bool fine = are_representable(values, part->cols, to);
        if (!dtype_is_quantised(to))
            dtype_from_f32(to, values, dst, part->cols);
        else if (fine)
            fine = dtype_quantise(to, values,
                                  part->importance != NULL ? part->importance + matrix * part->cols
                                                           : NULL,
                                  dst, part->cols);
        if (!fine)
            atomic_store_explicit(&part->failed, true, memory_order_relaxed);
    }
}

/* Rows that a thread takes at a time. */
static int64_t grain_of(size_t cols) {
    return cols < GRAIN_ELEMENTS ? (int64_t)(GRAIN_ELEMENTS / cols) : 1;
}

/* --- Tensors --- */

/* The sizes of a tensor's conversion. An interleaved bias is a column. */
struct shape {
    size_t rows, cols, matrices, part_rows;
};

static struct shape shape_of(const struct planned_tensor *planned) {
    const struct tensor_info *info = &planned->tensor.info;
    struct shape shape = {1, 1, 1, 1};
    for (int d = 0; d < info->num_dims - 1; d++)
        shape.rows *= (size_t)info->shape[d];
    if (info->num_dims > 0)
        shape.cols = (size_t)info->shape[info->num_dims - 1];
    for (int d = 0; d < info->num_dims - 2; d++)
        shape.matrices *= (size_t)info->shape[d];
    if (planned->interleaved_heads > 0 && info->num_dims == 1) {
        shape.rows = shape.cols;
        shape.cols = 1;
    }
    size_t row_bytes = shape.cols * sizeof(float);
    shape.part_rows = PART_BYTES / row_bytes > 0 ? PART_BYTES / row_bytes : 1;
    shape.part_rows = min_size(shape.part_rows, shape.rows);
    return shape;
}

static int read_importance(const struct conversion *c, const struct planned_tensor *planned,
                           const struct shape *shape, float **out, struct error *err) {
    const char *name = planned->tensor.name;
    bool found = false;
    *out = NULL;
    if (c->imatrix == NULL || !dtype_is_quantised(planned->tensor.info.dtype))
        return 0;
    float *values = calloc(shape->matrices * shape->cols, sizeof(float));
    if (values == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the importance of '%s'", name);
    int status = imatrix_read(c->imatrix, name, (int64_t)shape->matrices, (int64_t)shape->cols,
                              values, &found, err);
    if (status != 0 || !found) {
        free(values);
        return status;
    }
    *out = values;
    return 0;
}

static int advance(struct run *run, size_t bytes, struct error *err) {
    run->bytes_done += bytes;
    if (run->watcher == NULL ||
        !run->watcher->advanced(run->watcher->context, run->bytes_done, run->num_bytes))
        return 0;
    return error_set(err, ERROR_INTERRUPTED, "%s: interrupted; nothing is left of it",
                     run->output.path);
}

static int convert_parts(struct run *run, const struct planned_tensor *planned,
                         const struct shape *shape, struct part *part, struct source_rows *rows,
                         uint8_t *src, struct error *err) {
    part->src = src;
    for (size_t row = 0; row < shape->rows; row += shape->part_rows) {
        size_t count = min_size(shape->part_rows, shape->rows - row);
        part->first = row;
        if (source_rows_read(rows, row, count, src, err) != 0)
            return -1;
        thread_pool_for(run->pool, (int64_t)count, grain_of(part->cols), convert_rows, part);
        if (atomic_load_explicit(&part->failed, memory_order_relaxed))
            return error_set(err, ERROR_MODEL,
                             "%s: tensor '%s': has a value that is not finite, or too large for %s",
                             run->c->path, planned->tensor.name,
                             dtype_name(planned->tensor.info.dtype));
        if (put(&run->output, part->dst, count * part->dst_row_bytes, err) != 0 ||
            advance(run, count * part->src_row_bytes, err) != 0)
            return -1;
    }
    return 0;
}

static int convert_tensor(struct run *run, const struct planned_tensor *planned,
                          struct error *err) {
    struct shape shape = shape_of(planned);
    struct part part = {.planned = planned,
                        .cols = shape.cols,
                        .rows_per_matrix = shape.rows / shape.matrices,
                        .src_row_bytes = dtype_row_bytes(planned->tensor.from, shape.cols),
                        .dst_row_bytes = dtype_row_bytes(planned->tensor.info.dtype, shape.cols)};
    float *importance;
    if (read_importance(run->c, planned, &shape, &importance, err) != 0)
        return -1;
    part.importance = importance;
    struct source_rows rows;
    source_rows_init(&rows, run->c, planned, shape.cols, part.rows_per_matrix);
    uint8_t *src = calloc(shape.part_rows, part.src_row_bytes);
    part.dst = calloc(shape.part_rows, part.dst_row_bytes);
    part.scratch = calloc((size_t)thread_pool_size(run->pool), shape.cols * sizeof(float));
    int status = -1;
    if (src == NULL || part.dst == NULL || part.scratch == NULL)
        error_set(err, ERROR_MEMORY, "no memory for rows of '%s'", planned->tensor.name);
    else
        status = convert_parts(run, planned, &shape, &part, &rows, src, err);
    source_rows_finish(&rows);
    free(src);
    free(part.dst);
    free(part.scratch);
    free(importance);
    return status;
}

/* Pads the tensor before it, too. */
static int write_tensor(struct run *run, const struct planned_tensor *planned, struct error *err) {
    run->output.position = run->data_begin + planned->offset;
    return planned->values != NULL
               ? put(&run->output, planned->values, planned->tensor.info.bytes, err)
               : convert_tensor(run, planned, err);
}

/* What is computed comes first: with it and the header, the file can be checked as a model. */
static int write_all(struct run *run, const struct byte_buffer *header, struct error *err) {
    struct conversion *c = run->c;
    run->data_begin = header->length;
    if (put(&run->output, header->data, header->length, err) != 0)
        return -1;
    if (ftruncate(run->output.fd, (off_t)(header->length + c->header.data_bytes)) != 0)
        return fail(&run->output, "write", err);
    for (size_t i = 0; i < c->num_tensors; i++)
        if (c->tensors[i].values != NULL && write_tensor(run, &c->tensors[i], err) != 0)
            return -1;
    if (c->model != NULL && folder_source_check(c, run->output.partial, err) != 0)
        return -1;
    for (size_t i = 0; i < c->num_tensors; i++)
        if (c->tensors[i].values == NULL && write_tensor(run, &c->tensors[i], err) != 0)
            return -1;
    return 0;
}

int conversion_write(struct conversion *c, const char *out_path, int num_threads,
                     const struct conversion_watcher *watcher, struct error *err) {
    struct run run = {.c = c, .watcher = watcher, .num_bytes = conversion_bytes_from(c)};
    struct byte_buffer header = {0};
    if (gguf_writer_end(&c->header, &header, err) != 0 ||
        open_output(out_path, header.length + c->header.data_bytes, &run.output, err) != 0) {
        byte_buffer_finish(&header);
        return -1;
    }
    run.pool = thread_pool_create(num_threads, err);
    int status = run.pool != NULL ? write_all(&run, &header, err) : -1;
    thread_pool_destroy(run.pool);
    byte_buffer_finish(&header);
    return close_output(&run.output, status, err);
}
