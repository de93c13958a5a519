/* The collective ops. Unless config.fast_sums asks for NCCL's own sum, NCCL only carries: every
 * rank gets the parts of all and adds them itself, in float and in the order of the ranks. So the
 * bits do not depend on NCCL's choice of algorithm, which follows the size of the step, nor on the
 * other rows of it. For two ranks that moves as much as NCCL's own sum does, for R ranks R/2 times
 * as much. So a large sum of more than two is cut into slices: each rank adds up one of them, and
 * sends the others the result, which has the same bits.
 *
 * What is larger than the memory for the parts goes in pieces. */
#include "kernels/cuda/ops/cuda_collectives.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/cuda/ops/collectives_launch.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/ranks/cuda_group.h"
#include "kernels/cuda/step/cuda_staging.h"

/* A rank's part of what goes at once. */
#define MIN_PIECE_BYTES ((size_t)64 << 10)
#define MAX_PIECE_BYTES ((size_t)4 << 20)

/* The hidden states of the largest step, if that is not too much; and a row of logits. */
int cuda_collectives_create(struct cuda_backend *b, struct error *err) {
    const struct serving_limits *limits = &b->config.limits;
    struct cuda_comm *comm = b->comm;
    if (comm == NULL)
        return 0;
    size_t hidden_bytes = dtype_row_bytes(b->base.activation_dtype, (size_t)limits->hidden_size) *
                          (size_t)limits->max_num_batched_tokens;
    size_t logits_bytes = (size_t)limits->vocab_size * sizeof(float);
    comm->piece_bytes = min_size(MIN_PIECE_BYTES + hidden_bytes, MAX_PIECE_BYTES);
    return cuda_buffer_alloc(&b->base, comm->piece_bytes * (size_t)comm->num_ranks + logits_bytes,
                             &comm->parts, err);
}

void cuda_collectives_destroy(struct cuda_backend *b) {
    if (b->comm != NULL)
        cuda_buffer_free(&b->base, &b->comm->parts);
}

struct message {
    const void *data;
    size_t bytes;
};

/* Sends each other rank of the stage its message, and receives that rank's into `places`. */
static bool exchange(struct cuda_backend *b, const struct message sent[BACKEND_MAX_RANKS],
                     const struct message places[BACKEND_MAX_RANKS]) {
    const struct cuda_comm *comm = b->comm;
    const struct nccl_library *nccl = comm->nccl;
    NCCL_TRY(b, nccl->group_start());
    for (int32_t r = 0; r < comm->num_ranks; r++) {
        int peer = cuda_comm_peer(comm, r);
        if (r == comm->rank)
            continue;
        NCCL_TRY(b, nccl->send(sent[r].data, sent[r].bytes, ncclUint8, peer, comm->nccl_comm,
                               b->stream));
        NCCL_TRY(b, nccl->recv((void *)places[r].data, places[r].bytes, ncclUint8, peer,
                               comm->nccl_comm, b->stream));
    }
    return NCCL_TRY(b, nccl->group_end());
}

/* Of a stage, which is a part of the communicator. */
static bool exchange_parts(struct cuda_backend *b, const void *own, size_t bytes, char *parts) {
    const struct cuda_comm *comm = b->comm;
    struct message sent[BACKEND_MAX_RANKS], places[BACKEND_MAX_RANKS];
    char *place = parts + (size_t)comm->rank * bytes;
    if (own != place)
        CUDA_TRY(b, cudaMemcpyAsync(place, own, bytes, cudaMemcpyDeviceToDevice, b->stream));
    for (int32_t r = 0; r < comm->num_ranks; r++) {
        sent[r] = (struct message){own, bytes};
        places[r] = (struct message){parts + (size_t)r * bytes, bytes};
    }
    return exchange(b, sent, places);
}

bool cuda_all_gather(struct cuda_backend *b, const void *own, size_t bytes, void *parts) {
    size_t others = (size_t)b->comm->num_ranks - 1;
    if (!cuda_comm_begin(b, others * bytes, others * bytes))
        return false;
    if (cuda_comm_is_shared(b->comm))
        return exchange_parts(b, own, bytes, parts);
    return NCCL_TRY(
        b, b->comm->nccl->all_gather(own, parts, bytes, ncclUint8, b->comm->nccl_comm, b->stream));
}

/* Returns the parts of all ranks, `bytes` of each; of a backend that is alone its own. NULL after a
 * failure. They stay until the next collective op of the stream. */
static const void *gather_parts(struct cuda_backend *b, const void *own, size_t bytes) {
    struct cuda_comm *comm = b->comm;
    if (comm == NULL)
        return CUDA_OK(b) ? own : NULL;
    CHECK(bytes * (size_t)comm->num_ranks <= comm->parts.bytes);
    return cuda_all_gather(b, own, bytes, comm->parts.data) ? comm->parts.data : NULL;
}

static int32_t num_ranks_of(const struct cuda_backend *b) {
    return b->comm != NULL ? b->comm->num_ranks : 1;
}

/* Of more than two ranks: with less, a second round of messages takes longer than what it saves. On
 * paper (scripts/bench/cluster_sim/gpu_model.py; 10 us a round) that is so up to 2.4 MB with 4
 * ranks over NVLink, and up to 0.1 MB with 8 over 50 GB/s. */
#define MIN_SLICED_BYTES ((size_t)512 << 10)
#define SLICE_ELEMENTS 8 /* that launch_sum_parts loads at once */

/* Returns the first element of a rank's slice of n elements. */
static size_t slice_begin(const struct cuda_comm *comm, size_t n, int32_t rank) {
    size_t num_ranks = (size_t)comm->num_ranks;
    return rank == comm->num_ranks ? n
                                   : n / SLICE_ELEMENTS * (size_t)rank / num_ranks * SLICE_ELEMENTS;
}

/* A sum of n elements, of which this rank adds up `count` from `begin` on. */
struct sliced_sum {
    const char *x;
    char *out;
    size_t element, n, begin, count;
};

/* The slice that a rank adds up, in the array. */
static struct message slice_of(const struct cuda_comm *comm, const struct sliced_sum *sum,
                               const char *array, int32_t rank) {
    size_t begin = slice_begin(comm, sum->n, rank), end = slice_begin(comm, sum->n, rank + 1);
    return (struct message){array + begin * sum->element, (end - begin) * sum->element};
}

/* This rank gets everyone's part of its slice, contiguous in comm->parts. */
static bool exchange_slices(struct cuda_backend *b, const struct sliced_sum *sum) {
    const struct cuda_comm *comm = b->comm;
    struct message sent[BACKEND_MAX_RANKS], places[BACKEND_MAX_RANKS];
    size_t bytes = sum->count * sum->element, others = (size_t)comm->num_ranks - 1;
    char *parts = comm->parts.data;
    CHECK(bytes * (size_t)comm->num_ranks <= comm->parts.bytes);
    if (!cuda_comm_begin(b, (sum->n - sum->count) * sum->element, others * bytes))
        return false;
    CUDA_TRY(b,
             cudaMemcpyAsync(parts + (size_t)comm->rank * bytes, sum->x + sum->begin * sum->element,
                             bytes, cudaMemcpyDeviceToDevice, b->stream));
    for (int32_t r = 0; r < comm->num_ranks; r++) {
        sent[r] = slice_of(comm, sum, sum->x, r);
        places[r] = (struct message){parts + (size_t)r * bytes, bytes};
    }
    return exchange(b, sent, places);
}

static void exchange_sums(struct cuda_backend *b, const struct sliced_sum *sum) {
    const struct cuda_comm *comm = b->comm;
    struct message sent[BACKEND_MAX_RANKS], places[BACKEND_MAX_RANKS];
    size_t bytes = sum->count * sum->element, others = (size_t)comm->num_ranks - 1;
    if (!cuda_comm_begin(b, others * bytes, (sum->n - sum->count) * sum->element))
        return;
    for (int32_t r = 0; r < comm->num_ranks; r++) {
        sent[r] = slice_of(comm, sum, sum->out, comm->rank);
        places[r] = slice_of(comm, sum, sum->out, r);
    }
    exchange(b, sent, places);
}

static void reduce_slices(struct cuda_backend *b, const struct sliced_sum *sum, bool accumulate) {
    if (!exchange_slices(b, sum))
        return;
    CUDA_TRY(b, launch_sum_parts(b->stream, cuda_is_bf16(b), b->comm->parts.data,
                                 b->comm->num_ranks, sum->out + sum->begin * sum->element,
                                 (int64_t)sum->count, accumulate));
    exchange_sums(b, sum);
}

static bool is_sliced(const struct cuda_comm *comm, size_t bytes) {
    return comm != NULL && comm->num_ranks > 2 && bytes >= MIN_SLICED_BYTES;
}

/* --- Sums by NCCL --- */

/* NCCL's sum is of all ranks of a communicator, and stages have one together. */
bool cuda_sums_by_nccl(const struct cuda_backend *b) {
    return b->config.fast_sums && num_ranks_of(b) > 1 && !cuda_comm_is_shared(b->comm);
}

static void sum_by_nccl(struct cuda_backend *b, const void *x, void *out, size_t n) {
    const struct cuda_comm *comm = b->comm;
    size_t bytes = n * dtype_row_bytes(b->base.activation_dtype, 1);
    size_t sent = 2 * ((size_t)comm->num_ranks - 1) * bytes / (size_t)comm->num_ranks;
    if (cuda_comm_begin(b, sent, sent))
        NCCL_TRY(b, comm->nccl->all_reduce(x, out, n, cuda_is_bf16(b) ? ncclBfloat16 : ncclFloat16,
                                           ncclSum, comm->nccl_comm, b->stream));
}

static void reduce_by_nccl(struct cuda_backend *b, const struct all_reduce_args *args) {
    size_t element = dtype_row_bytes(b->base.activation_dtype, 1);
    size_t n = (size_t)args->num_rows * (size_t)args->width;
    void *sums = b->comm->parts.data;
    if (!args->accumulate) {
        sum_by_nccl(b, args->x, args->out, n);
        return;
    }
    for (size_t first = 0, count; first < n; first += count) {
        count = min_size(n - first, b->comm->parts.bytes / element);
        sum_by_nccl(b, (const char *)args->x + first * element, sums, count);
        CUDA_TRY(b, launch_sum_parts(b->stream, cuda_is_bf16(b), sums, 1,
                                     (char *)args->out + first * element, (int64_t)count, true));
    }
}

void cuda_all_reduce(struct backend *base, const struct all_reduce_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    size_t element = dtype_row_bytes(base->activation_dtype, 1);
    size_t n = (size_t)args->num_rows * (size_t)args->width;
    if (cuda_sums_by_nccl(b)) {
        reduce_by_nccl(b, args);
        return;
    }
    for (size_t first = 0, count; first < n; first += count) {
        count = b->comm != NULL ? min_size(n - first, b->comm->piece_bytes / element) : n;
        const char *x = (const char *)args->x + first * element;
        if (is_sliced(b->comm, count * element)) {
            size_t begin = slice_begin(b->comm, count, b->comm->rank);
            size_t end = slice_begin(b->comm, count, b->comm->rank + 1);
            const struct sliced_sum sum = {
                x, (char *)args->out + first * element, element, count, begin, end - begin};
            reduce_slices(b, &sum, args->accumulate);
            continue;
        }
        const void *parts = gather_parts(b, x, count * element);
        if (parts == NULL)
            return;
        CUDA_TRY(b, launch_sum_parts(b->stream, cuda_is_bf16(b), parts, num_ranks_of(b),
                                     (char *)args->out + first * element, (int64_t)count,
                                     args->accumulate));
    }
}

/* --- Norm --- */

/* Each rank's sums are written where NCCL leaves them. */
static void norm_rows(struct cuda_backend *b, const struct norm_over_ranks_launch *rows) {
    struct cuda_comm *comm = b->comm;
    size_t bytes = (size_t)rows->num_rows * sizeof(float);
    float *own = (float *)comm->parts.data + (size_t)comm->rank * (size_t)rows->num_rows;
    CUDA_TRY(b, launch_square_sums(b->stream, rows, own));
    const float *sums = gather_parts(b, own, bytes);
    if (sums != NULL)
        CUDA_TRY(b, launch_norm_by_sums(b->stream, rows, sums, comm->num_ranks));
}

void cuda_norm_over_ranks(struct cuda_backend *b, const struct norm_args *args) {
    size_t row_bytes = (size_t)args->row_stride * dtype_row_bytes(b->base.activation_dtype, 1);
    for (int32_t first = 0, count; first < args->num_rows; first += count) {
        count = min_int32(args->num_rows - first, (int32_t)(b->comm->piece_bytes / sizeof(float)));
        const struct norm_over_ranks_launch rows = {
            .x = (const char *)args->x + (size_t)first * row_bytes,
            .weight = args->weight,
            .out = (char *)args->out + (size_t)first * row_bytes,
            .num_rows = count,
            .row_stride = args->row_stride,
            .width = args->width,
            .total_width = args->total_width,
            .epsilon = args->epsilon,
            .accumulate = args->accumulate,
            .bf16 = cuda_is_bf16(b),
        };
        norm_rows(b, &rows);
    }
}

/* --- Columns --- */

bool cuda_learn_widths(struct cuda_backend *b, int32_t width) {
    struct cuda_comm *comm = b->comm;
    if (comm->widths[comm->rank] == 0) {
        CHECK(b->recording == NULL);
        int32_t *own = (int32_t *)comm->parts.data + comm->rank;
        cuda_staging_upload(b, own, &width, sizeof(width));
        if (gather_parts(b, own, sizeof(width)) == NULL)
            return false;
        cuda_staging_fetch(b, comm->widths, comm->parts.data,
                           (size_t)comm->num_ranks * sizeof(width));
    }
    CHECK(!CUDA_OK(b) || comm->widths[comm->rank] == width);
    return CUDA_OK(b);
}

size_t cuda_columns_before(const struct cuda_comm *comm, int32_t rank) {
    size_t sum = 0;
    for (int32_t r = 0; r < rank; r++)
        sum += (size_t)comm->widths[r];
    return sum;
}

bool cuda_bring_parts(struct cuda_backend *b, const void *own, const size_t *part_bytes) {
    const struct cuda_comm *comm = b->comm;
    const struct nccl_library *nccl = comm->nccl;
    char *part = comm->parts.data;
    size_t received = 0;
    for (int32_t r = 1; comm->rank == 0 && r < comm->num_ranks; r++)
        received += part_bytes[r];
    if (!cuda_comm_begin(b, comm->rank > 0 ? part_bytes[comm->rank] : 0, received))
        return false;
    if (comm->rank > 0)
        return NCCL_TRY(b, nccl->send(own, part_bytes[comm->rank], ncclUint8,
                                      cuda_comm_peer(comm, 0), comm->nccl_comm, b->stream));
    NCCL_TRY(b, nccl->group_start());
    for (int32_t r = 1; r < comm->num_ranks; r++) {
        part += part_bytes[r - 1];
        NCCL_TRY(b, nccl->recv(part, part_bytes[r], ncclUint8, cuda_comm_peer(comm, r),
                               comm->nccl_comm, b->stream));
    }
    return NCCL_TRY(b, nccl->group_end());
}

/* Returns where rank 0 receives rank r's part of num_rows rows. */
static float *part_of(const struct cuda_comm *comm, int32_t rank, int32_t num_rows) {
    return (float *)comm->parts.data + cuda_columns_before(comm, rank) * (size_t)num_rows;
}

static bool carry_rows(struct cuda_backend *b, const float *x, int32_t num_rows) {
    const struct cuda_comm *comm = b->comm;
    size_t part_bytes[BACKEND_MAX_RANKS];
    for (int32_t r = 0; r < comm->num_ranks; r++)
        part_bytes[r] = (size_t)num_rows * (size_t)comm->widths[r] * sizeof(float);
    return cuda_bring_parts(b, x, part_bytes);
}

static void gather_rows(struct cuda_backend *b, const float *x, float *out, int32_t num_rows) {
    const struct cuda_comm *comm = b->comm;
    size_t stride = cuda_columns_before(comm, comm->num_ranks);
    if (!carry_rows(b, x, num_rows) || comm->rank > 0)
        return;
    for (int32_t r = 0; r < comm->num_ranks; r++)
        CUDA_TRY(b, launch_place_columns(b->stream, r == 0 ? x : part_of(comm, r, num_rows),
                                         comm->widths[r], out + cuda_columns_before(comm, r),
                                         (int64_t)stride, num_rows));
}

void cuda_gather_columns(struct backend *base, const struct gather_columns_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    if (args->num_rows == 0)
        return;
    if (b->comm == NULL) {
        CUDA_TRY(b, launch_place_columns(b->stream, args->x, args->width, args->out, args->width,
                                         args->num_rows));
        return;
    }
    if (!cuda_learn_widths(b, args->width))
        return;
    size_t total = cuda_columns_before(b->comm, b->comm->num_ranks);
    int32_t most = (int32_t)(b->comm->parts.bytes / (total * sizeof(float)));
    CHECK(most > 0);
    for (int32_t first = 0, count; first < args->num_rows && CUDA_OK(b); first += count) {
        count = min_int32(args->num_rows - first, most);
        gather_rows(b, args->x + (size_t)first * (size_t)args->width,
                    b->comm->rank == 0 ? args->out + (size_t)first * total : NULL, count);
    }
}

/* --- Sampled tokens --- */

void cuda_share_samples(struct backend *base, const struct share_samples_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    int32_t *tokens = (int32_t *)b->step.sampled_tokens.data + args->first_row;
    size_t bytes = (size_t)args->num_sample_rows * sizeof(*tokens);
    if (b->comm == NULL || bytes == 0)
        return;
    CHECK(!cuda_comm_is_shared(b->comm)); /* stages wait for sampled tokens */
    bool sends = b->comm->rank == 0;
    size_t others = (size_t)b->comm->num_ranks - 1;
    if (cuda_comm_begin(b, sends ? others * bytes : 0, sends ? 0 : bytes))
        NCCL_TRY(b, b->comm->nccl->broadcast(tokens, tokens, bytes, ncclUint8, 0,
                                             b->comm->nccl_comm, b->stream));
}

/* --- Stages --- */

static size_t bytes_of(const struct cuda_backend *b, const struct stage_rows_args *args) {
    return (size_t)args->num_rows * dtype_row_bytes(b->base.activation_dtype, (size_t)args->width);
}

void cuda_send_rows(struct backend *base, const struct stage_rows_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    const struct cuda_comm *comm = b->comm;
    size_t bytes = bytes_of(b, args);
    if (cuda_comm_begin(b, bytes, 0))
        NCCL_TRY(b, comm->nccl->send(args->x, bytes, ncclUint8,
                                     cuda_comm_peer(comm, comm->rank + comm->num_ranks),
                                     comm->nccl_comm, b->stream));
}

void cuda_receive_rows(struct backend *base, const struct stage_rows_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    const struct cuda_comm *comm = b->comm;
    size_t bytes = bytes_of(b, args);
    if (cuda_comm_begin(b, 0, bytes))
        NCCL_TRY(b, comm->nccl->recv(args->x, bytes, ncclUint8,
                                     cuda_comm_peer(comm, comm->rank - comm->num_ranks),
                                     comm->nccl_comm, b->stream));
}
