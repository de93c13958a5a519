#include "tests/kernels/device_replay.h"

#include <stdio.h>
#include <string.h>

enum {
    HOST_BYTES = 4 << 20, /* of a recording: lists of rows and blocks, sampled rows */
    COMPARED_BYTES = 4096,
    FILLER = 0x41, /* neither what an op gives nor what it leaves alone: 12 as a float or a bf16 */
};

/* --- The check --- */

static size_t compared_bytes(const struct device_bench_result *result) {
    return result->bytes < COMPARED_BYTES ? result->bytes : COMPARED_BYTES;
}

static void overwrite(struct device_bench *bench, const struct device_bench_result *result) {
    static char filler[COMPARED_BYTES];
    struct backend *b = bench->backend;
    memset(filler, FILLER, sizeof(filler));
    if (result->on_host)
        memcpy(result->data, filler, compared_bytes(result));
    else
        b->ops->upload(b, result->data, filler, compared_bytes(result));
    device_bench_wait(bench);
}

static void read_result(struct device_bench *bench, const struct device_bench_result *result,
                        char *out) {
    struct backend *b = bench->backend;
    if (result->on_host)
        memcpy(out, result->data, compared_bytes(result));
    else
        b->ops->download(b, out, result->data, compared_bytes(result));
    device_bench_wait(bench);
}

static bool is_overwritten(const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != FILLER)
            return false;
    return true;
}

/* `other` is a call of the same kind, which leaves other intermediate results behind. */
static void check_replay(struct device_bench *bench, const struct device_bench_job *job,
                         int64_t other, const struct device_bench_result *result,
                         struct recording *recording, const char *expected) {
    struct backend *b = bench->backend;
    char actual[COMPARED_BYTES];
    size_t bytes = compared_bytes(result);
    job->call(job->context, other);
    device_bench_wait(bench);
    overwrite(bench, result);
    b->ops->recording->replay(b, recording);
    device_bench_wait(bench);
    read_result(bench, result, actual);
    if (is_overwritten(expected, bytes) || memcmp(actual, expected, bytes) != 0)
        device_bench_fail("a replay left other results than the calls that were recorded");
}

/* --- Recording and time --- */

/* NULL: it cannot be. */
static struct recording *record(struct device_bench *bench, const struct device_bench_job *job,
                                int64_t first, int64_t count) {
    struct backend *b = bench->backend;
    struct recording *recording = NULL;
    struct error err = {0};
    if (job->begin != NULL)
        job->begin(job->context);
    device_bench_wait(bench);
    bool has_begun = b->ops->recording->begin(b, HOST_BYTES, &err) == 0;
    for (int64_t i = 0; has_begun && i < count; i++)
        job->call(job->context, first + i);
    if (!has_begun || b->ops->recording->end(b, &recording, &err) != 0)
        fprintf(stderr, "timed by the host's clock: %s\n", err.message);
    return recording;
}

static void time_replays(struct device_bench *bench, struct recording *recording,
                         double *out_seconds) {
    struct backend *b = bench->backend;
    const struct recording_ops *ops = b->ops->recording;
    struct mark *marks[DEVICE_BENCH_MAX_BATCHES + 1];
    struct error err = {0};
    for (int i = 0; i <= bench->num_batches; i++)
        if (ops->mark_create(b, &marks[i], &err) != 0)
            device_bench_fail("%s", err.message);
    for (int i = 0; i <= bench->num_batches; i++) {
        ops->replay(b, recording);
        ops->mark_set(b, marks[i]);
    }
    device_bench_wait(bench);
    for (int i = 0; i < bench->num_batches; i++)
        out_seconds[i] = ops->mark_seconds(b, marks[i], marks[i + 1]);
    for (int i = 0; i <= bench->num_batches; i++)
        ops->mark_destroy(b, marks[i]);
}

bool device_replay_run(struct device_bench *bench, const struct device_bench_job *job,
                       int64_t first, int64_t count, double *out_seconds) {
    struct backend *b = bench->backend;
    char expected[COMPARED_BYTES];
    if (b->ops->recording == NULL || job->result == NULL)
        return false;
    const struct device_bench_result result = job->result(job->context, first + count - 1);
    overwrite(bench, &result);
    device_bench_call(bench, job, first, count);
    read_result(bench, &result, expected);
    struct recording *recording = record(bench, job, first, count);
    if (recording == NULL)
        return false;
    check_replay(bench, job, first + count, &result, recording, expected);
    time_replays(bench, recording, out_seconds);
    b->ops->recording->free(b, recording);
    return true;
}
