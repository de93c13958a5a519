/* The collective ops over MPI: check_mpi sums|large|killed|silent, by mpirun.
 *   sums    every op, against results that each rank knows by itself; and messages of any size
 *   large   a message of more bytes than an int counts, by hand: each rank takes 2.6 GiB
 *   killed  the last rank is killed between two ops, and
 *   silent  stops: the others end with status 3 and a line that says so, unless mpirun ends them
 * Ends with status 1 and a line on stderr for what is wrong. */
#include "config/base/clock.h"
#include "kernels/backend.h"
#include "kernels/transport.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ROWS = 40, WIDTH = 1000, MAX_COLUMNS = 4000, STATUS_WRONG = 1, STATUS_LOST = 3 };

static struct transport *transport;
static struct backend *backend;

static void fail(const char *what) {
    fprintf(stderr, "check_mpi: rank %d: %s\n", transport != NULL ? transport->rank : -1, what);
    _exit(STATUS_WRONG);
}

static void require(bool is_right, const char *what) {
    if (!is_right)
        fail(what);
}

static void *memory(size_t bytes) {
    void *block = calloc(1, bytes);
    require(block != NULL, "out of memory");
    return block;
}

/* What a rank has at i: sums of such depend on their order. */
static float value(int32_t rank, int64_t i) {
    return 1.0F / (float)(3 + rank * 5 + i % 1013);
}

static float sum_at(int64_t i) {
    float sum = value(0, i);
    for (int32_t r = 1; r < transport->num_ranks; r++)
        sum += value(r, i);
    return sum;
}

/* --- The ops --- */

static void check_all_reduce(int32_t num_rows) {
    int64_t n = (int64_t)num_rows * WIDTH;
    float *x = memory((size_t)n * sizeof(float)), *out = memory((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        x[i] = value(transport->rank, i);
        out[i] = (float)i;
    }
    backend->ops->all_reduce(
        backend, &(struct all_reduce_args){
                     .x = x, .out = out, .num_rows = num_rows, .width = WIDTH, .accumulate = true});
    for (int64_t i = 0; i < n; i++)
        require(out[i] == (float)i + sum_at(i), "all_reduce adds another sum");
    backend->ops->all_reduce(
        backend, &(struct all_reduce_args){.x = x, .out = x, .num_rows = num_rows, .width = WIDTH});
    for (int64_t i = 0; i < n; i++)
        require(x[i] == sum_at(i), "all_reduce in place is another sum");
    free(x);
    free(out);
}

/* Widths differ from rank to rank, and from call to call. */
static void check_gather(int32_t num_rows, int32_t base) {
    int32_t width = base + transport->rank, total = 0;
    float *x = memory((size_t)(num_rows * width) * sizeof(float)), *out = NULL;
    for (int32_t r = 0; r < transport->num_ranks; r++)
        total += base + r;
    if (transport->rank == 0)
        out = memory((size_t)(num_rows * total) * sizeof(float));
    for (int32_t i = 0; i < num_rows * width; i++)
        x[i] = value(transport->rank, i);
    backend->ops->gather_columns(
        backend,
        &(struct gather_columns_args){.x = x, .out = out, .num_rows = num_rows, .width = width});
    for (int32_t row = 0, at = 0; out != NULL && row < num_rows; row++)
        for (int32_t r = 0; r < transport->num_ranks; r++)
            for (int32_t i = 0; i < base + r; i++)
                require(out[at++] == value(r, row * (base + r) + i), "gather_columns");
    free(x);
    free(out);
}

static void check_norm(void) {
    float x[WIDTH], weight[WIDTH];
    double sum = 0;
    for (int32_t i = 0; i < WIDTH; i++) {
        x[i] = (float)(transport->rank + 1);
        weight[i] = 1;
    }
    for (int32_t r = 0; r < transport->num_ranks; r++)
        sum += (double)WIDTH * (r + 1) * (r + 1);
    int32_t total_width = WIDTH * transport->num_ranks;
    backend->ops->norm(backend, &(struct norm_args){.x = x,
                                                    .weight = weight,
                                                    .out = x,
                                                    .num_rows = 1,
                                                    .row_stride = WIDTH,
                                                    .width = WIDTH,
                                                    .total_width = total_width});
    double square = (double)(transport->rank + 1) * (transport->rank + 1) / (sum / total_width);
    for (int32_t i = 0; i < WIDTH; i++) {
        double difference = (double)x[i] * x[i] - square;
        require(difference < 1e-5 && difference > -1e-5, "norm across ranks");
    }
}

/* Rank 0 samples a token, which every rank's next step embeds. */
static void check_share(void) {
    enum { VOCAB = 8, TOKEN = 5 };
    static const int32_t zero[2] = {0}, starts[2] = {0, 1}, one[1] = {1};
    struct step_inputs step = {.num_tokens = 1,
                               .num_seqs = 1,
                               .max_blocks_per_seq = 1,
                               .token_ids = zero,
                               .positions = zero,
                               .slot_mapping = zero,
                               .query_start = starts,
                               .context_lens = one,
                               .block_tables = zero};
    float logits[VOCAB] = {[TOKEN] = 9}, table[VOCAB * 32], out[32] = {0};
    struct sample_row row = {.target = TOKEN, .num_logprobs = -1};
    struct sample_output output;
    struct matrix *matrix = NULL;
    for (int32_t i = 0; i < VOCAB * 32; i++)
        table[i] = (float)i;
    const struct matrix_part part = {.dtype = DTYPE_F32, .rows = VOCAB, .data = table};
    require(backend->ops->matrix_create(backend, &part, 1, 32, MATRIX_LINEAR, &matrix, NULL) == 0,
            "matrix");
    backend->ops->step_begin(backend, &step);
    if (transport->rank == 0)
        backend->ops->sample(backend, &(struct sample_args){.logits = logits,
                                                            .num_sample_rows = 1,
                                                            .vocab_size = VOCAB,
                                                            .rows = &row,
                                                            .out = &output});
    backend->ops->share_samples(backend, &(struct share_samples_args){.num_sample_rows = 1});
    step.token_rows = zero;
    backend->ops->step_begin(backend, &step);
    backend->ops->embed(backend, &(struct embed_args){.table = matrix, .out = out, .scale = 1});
    require(memcmp(out, table + (size_t)TOKEN * 32, sizeof(out)) == 0, "share_samples");
    backend->ops->matrix_destroy(backend, matrix);
}

/* --- Messages --- */

static uint8_t byte_at(size_t i) {
    return (uint8_t)(i * 7 + (i >> 20));
}

/* From rank 0 to rank 1. */
static void check_message(size_t bytes) {
    struct error err = {0};
    uint8_t *data = memory(bytes + 1);
    if (transport->rank == 0) {
        for (size_t i = 0; i < bytes; i++)
            data[i] = byte_at(i);
        if (transport_send(transport, TRANSPORT_STEPS, 1, data, bytes, &err) != 0)
            fail(err.message);
    } else if (transport->rank == 1) {
        if (transport_receive(transport, TRANSPORT_STEPS, 0, data, bytes, &err) != 0)
            fail(err.message);
        for (size_t i = 0; i < bytes; i++)
            require(data[i] == byte_at(i), "a message has other bytes");
        require(data[bytes] == 0, "a message is longer");
    }
    free(data);
}

static void check_sums(void) {
    struct error err = {0};
    static const int32_t rows[] = {1, 3, MAX_ROWS};
    require(transport->num_local == transport->num_ranks, "not all ranks are on this machine");
    for (int run = 0; run < 3; run++)
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            check_all_reduce(rows[i]);
            check_gather(rows[i], 1 + 700 * run);
            check_norm();
            check_share();
        }
    for (size_t bytes = 1; bytes < (size_t)8 << 20; bytes = bytes * 5 + 1)
        check_message(bytes);
    if (backend->ops->step_wait(backend, &err) != 0)
        fail(err.message);
}

/* --- Ranks that are lost --- */

/* Says on stdout how far it came. */
static void lose_last_rank(int signal_number) {
    struct error err = {0};
    check_all_reduce(3);
    printf("rank %d: the first sum is right\n", transport->rank);
    fflush(stdout);
    if (transport->rank == transport->num_ranks - 1)
        kill(getpid(), signal_number);
    float x[WIDTH] = {0};
    const struct all_reduce_args sum = {.x = x, .out = x, .num_rows = 1, .width = WIDTH};
    for (;;) {
        backend->ops->all_reduce(backend, &sum);
        if (backend->ops->step_wait(backend, &err) != 0)
            break;
    }
    printf("rank %d: %s\n", transport->rank, err.message);
    fflush(stdout);
    _exit(STATUS_LOST);
}

static void open_all(struct backend_group **out_group) {
    struct error err = {0};
    if (transport_open(&transport, &err) != 0 ||
        backend_group_create_remote("cpu-ref", transport, 0, transport->num_ranks, out_group,
                                    &err) != 0)
        fail(err.message);
    const struct backend_config config = {.num_threads = 1,
                                          .limits.max_num_batched_tokens = MAX_ROWS,
                                          .limits.max_num_seqs = MAX_ROWS,
                                          .limits.max_logit_rows = MAX_ROWS,
                                          .limits.vocab_size = BACKEND_MAX_RANKS * MAX_COLUMNS,
                                          .limits.hidden_size = WIDTH,
                                          .group = *out_group,
                                          .rank = transport->rank};
    backend = backend_open("cpu", &config, &err);
    if (backend == NULL)
        fail(err.message);
}

int main(int argc, char **argv) {
    struct backend_group *group = NULL;
    const char *mode = argc == 2 ? argv[1] : "";
    require(transport_is_expected(), "is started by mpirun -n 2 or more");
    open_all(&group);
    require(transport->num_ranks > 1, "there is one rank only");
    if (strcmp(mode, "sums") == 0) {
        transport->timeout_ns = 60 * CLOCK_NS_PER_S;
        check_sums();
    } else if (strcmp(mode, "large") == 0) {
        check_message(((size_t)5 << 29) + 12345);
    } else {
        transport->timeout_ns = 2 * CLOCK_NS_PER_S;
        lose_last_rank(strcmp(mode, "killed") == 0 ? SIGKILL : SIGSTOP);
    }
    backend_close(backend);
    backend_group_destroy(group);
    transport->ops->destroy(transport);
    return 0;
}
