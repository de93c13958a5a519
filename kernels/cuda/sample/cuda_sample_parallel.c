/* Sampling where each rank has the logits of a part of the vocabulary. All ranks know the rows, so
 * each tells rank 0 of a row what its kind asks for, in a message whose size all know, and no rank
 * waits on the host for another's results. Rank 0 makes rows of what it receives, and samples from
 * them as from any.
 *
 *   greedy                  the likeliest token
 *   top_k, if that is less  that many of the likeliest: those of the whole row are among them
 *   neither top_k nor top_p the token that is drawn
 *   all others              the logits
 *
 * Before a token is drawn, the ranks bring one another their largest logits, and then what their
 * tokens weigh by the largest of these. Of a row with logprobs, but for `all others`, each also
 * tells what its tokens weigh, its likeliest ones, and how many are likelier than the row's token:
 * the logit of one that is drawn or given the ranks bring one another before.
 *
 * A call's rows go in as many messages as the memory for the parts takes, one unless they are many
 * whole ones. */
#include "config/base/check.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/ops/cuda_collectives.h"
#include "kernels/cuda/ranks/cuda_group.h"
#include "kernels/cuda/step/cuda_staging.h"
#include "kernels/cuda/sample/sample_parallel_launch.h"

#include <stdlib.h>

struct cuda_sample_parallel {
    struct row_excerpt *planned; /* [max_logit_rows], of the last call */
    struct buffer excerpts;      /* the same on the device: of the call that is computed */
    struct buffer own;           /* unsigned long long [max_logit_rows] */
    struct buffer largest;       /* [num_ranks] of such */
    struct buffer masses;        /* likewise */
    struct buffer chosen;        /* likewise */
    struct buffer parts;         /* rank 0: struct sample_part [max_logit_rows, num_ranks] */
};

int cuda_sample_parallel_create(struct cuda_backend *b, struct error *err) {
    if (b->comm == NULL)
        return 0;
    size_t num_rows = (size_t)b->config.limits.max_logit_rows;
    size_t own_bytes = num_rows * sizeof(unsigned long long);
    size_t num_ranks = (size_t)b->comm->num_ranks, all_bytes = own_bytes * num_ranks;
    size_t parts_bytes = b->comm->rank == 0 ? num_rows * num_ranks * sizeof(struct sample_part) : 0;
    struct cuda_sample_parallel *s = calloc(1, sizeof(*s));
    b->sample_parallel = s;
    if (s != NULL)
        s->planned = calloc(num_rows + 1, sizeof(*s->planned));
    if (s == NULL || s->planned == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for a rank");
    return cuda_buffer_alloc(&b->base, num_rows * sizeof(*s->planned), &s->excerpts, err) != 0 ||
                   cuda_buffer_alloc(&b->base, own_bytes, &s->own, err) != 0 ||
                   cuda_buffer_alloc(&b->base, all_bytes, &s->largest, err) != 0 ||
                   cuda_buffer_alloc(&b->base, all_bytes, &s->masses, err) != 0 ||
                   cuda_buffer_alloc(&b->base, all_bytes, &s->chosen, err) != 0 ||
                   cuda_buffer_alloc(&b->base, parts_bytes, &s->parts, err) != 0
               ? -1
               : 0;
}

void cuda_sample_parallel_destroy(struct cuda_backend *b) {
    struct cuda_sample_parallel *s = b->sample_parallel;
    if (s == NULL)
        return;
    cuda_buffer_free(&b->base, &s->excerpts);
    cuda_buffer_free(&b->base, &s->own);
    cuda_buffer_free(&b->base, &s->largest);
    cuda_buffer_free(&b->base, &s->masses);
    cuda_buffer_free(&b->base, &s->chosen);
    cuda_buffer_free(&b->base, &s->parts);
    free(s->planned);
    free(s);
    b->sample_parallel = NULL;
}

/* --- Excerpts --- */

/* What comes before a row in a message, or all that is in it. */
struct message_size {
    int32_t length, num_wholes; /* the first in sample_logits */
};

/* Candidates of all ranks are sent up to as many bytes as the whole row. */
static bool has_few_candidates(const struct sample_row *row, int32_t vocab_size,
                               int32_t num_ranks) {
    int64_t bytes = (int64_t)row->settings.top_k * num_ranks * (int64_t)sizeof(struct sample_logit);
    return sample_has_top_k(row, vocab_size) &&
           bytes <= (int64_t)vocab_size * (int64_t)sizeof(float);
}

static struct row_excerpt excerpt_of(const struct sample_row *row, int32_t vocab_size,
                                     int32_t num_ranks) {
    bool has_logprobs = row->num_logprobs >= 0;
    struct row_excerpt excerpt = {.is_reported = has_logprobs, .num_candidates = 1};
    if (sample_is_edited(row) || sample_is_shaped(row) || (has_logprobs && row->num_listed > 0))
        return (struct row_excerpt){.kind = EXCERPT_WHOLE};
    if (row->target != SAMPLE_NO_TARGET && !has_logprobs)
        return (struct row_excerpt){.kind = EXCERPT_NOTHING};
    if (row->target != SAMPLE_NO_TARGET) {
        excerpt.kind = EXCERPT_GIVEN;
    } else if (!sample_is_drawn(row)) {
        excerpt.kind = EXCERPT_TOP;
    } else if (!sample_has_cut(row, vocab_size)) {
        excerpt.kind = EXCERPT_DRAWN;
    } else if (has_few_candidates(row, vocab_size, num_ranks)) {
        excerpt.kind = EXCERPT_TOP;
        excerpt.num_candidates = row->settings.top_k;
    } else {
        return (struct row_excerpt){.kind = EXCERPT_WHOLE};
    }
    return excerpt;
}

static struct message_size size_with(struct message_size before,
                                     const struct row_excerpt *excerpt) {
    return (struct message_size){before.length + excerpt_length(excerpt),
                                 before.num_wholes + (excerpt->kind == EXCERPT_WHOLE)};
}

/* Of a rank of that width. */
static size_t message_bytes(struct message_size size, int32_t width) {
    const struct row_excerpt end = {.length_before = size.length, .wholes_before = size.num_wholes};
    return (size_t)excerpt_place(&end, width) * sizeof(struct sample_logit);
}

static bool has_room(const struct cuda_comm *comm, struct message_size size) {
    size_t bytes = 0;
    for (int32_t r = 0; r < comm->num_ranks; r++)
        bytes += message_bytes(size, comm->widths[r]);
    return bytes <= comm->parts.bytes;
}

static void plan_messages(const struct cuda_comm *comm, const struct sample_row *rows,
                          int32_t num_rows, struct row_excerpt *out) {
    int32_t vocab_size = (int32_t)cuda_columns_before(comm, comm->num_ranks);
    struct message_size size = {0};
    for (int32_t r = 0; r < num_rows; r++) {
        struct row_excerpt excerpt = excerpt_of(&rows[r], vocab_size, comm->num_ranks);
        excerpt.begins_message = r == 0 || !has_room(comm, size_with(size, &excerpt));
        if (excerpt.begins_message)
            size = (struct message_size){0};
        excerpt.length_before = size.length;
        excerpt.wholes_before = size.num_wholes;
        size = size_with(size, &excerpt);
        out[r] = excerpt;
    }
}

/* --- What is sent --- */

/* The ranks learn of rows that are drawn from all tokens where in their sums, and of reported rows
 * the largest logit and the token's, if there is any such row. */
static void weigh_rows(struct cuda_backend *b, const struct sample_columns *columns) {
    const struct cuda_sample_parallel *s = b->sample_parallel;
    unsigned long long *own = s->own.data;
    size_t bytes = (size_t)columns->num_rows * sizeof(*own);
    bool any_drawn = false, any_reported = false, any_chosen = false;
    for (int32_t r = 0; r < columns->num_rows; r++) {
        const struct row_excerpt *excerpt = &s->planned[r];
        any_drawn |= excerpt->kind == EXCERPT_DRAWN;
        any_reported |= excerpt->is_reported;
        any_chosen |= excerpt->is_reported && excerpt->kind != EXCERPT_TOP;
    }
    if (any_drawn || any_reported) {
        CUDA_TRY(b, launch_sample_largest(b->stream, columns, own));
        cuda_all_gather(b, own, bytes, s->largest.data);
    }
    if (any_drawn) {
        CUDA_TRY(b, launch_sample_mass(b->stream, columns, own));
        cuda_all_gather(b, own, bytes, s->masses.data);
    }
    if (any_chosen) {
        CUDA_TRY(b, launch_sample_chosen(b->stream, columns, own));
        cuda_all_gather(b, own, bytes, s->chosen.data);
    }
}

/* Puts the received parts of the rows in the place of their logits, [num_rows, vocabulary], and of
 * their reports. */
static void place_messages(struct cuda_backend *b, const size_t *part_bytes,
                           const struct sample_message *rows, float *logits,
                           struct sample_part *parts) {
    const struct cuda_comm *comm = b->comm;
    const char *part = comm->parts.data;
    int32_t vocab_size = (int32_t)cuda_columns_before(comm, comm->num_ranks);
    for (int32_t r = 0; r < comm->num_ranks; r++) {
        struct sample_message message = *rows;
        message.data = (const void *)part;
        message.rank = r;
        message.first_token = (int32_t)cuda_columns_before(comm, r);
        message.width = comm->widths[r];
        CUDA_TRY(b, launch_sample_place(b->stream, &message, logits + message.first_token,
                                        vocab_size, parts));
        part += part_bytes[r];
    }
}

/* Tells rank 0 of rows first_row to first_row + num_rows - 1. logits: on rank 0, of the first of
 * them. */
static void send_message(struct cuda_backend *b, const struct sample_columns *columns,
                         int32_t first_row, int32_t num_rows, float *logits) {
    const struct cuda_comm *comm = b->comm;
    const struct row_excerpt *last = &b->sample_parallel->planned[first_row + num_rows - 1];
    struct message_size size =
        size_with((struct message_size){last->length_before, last->wholes_before}, last);
    size_t part_bytes[BACKEND_MAX_RANKS];
    for (int32_t r = 0; r < comm->num_ranks; r++)
        part_bytes[r] = message_bytes(size, comm->widths[r]);
    if (part_bytes[comm->rank] == 0)
        return;
    CUDA_TRY(b, launch_sample_excerpt(b->stream, columns, first_row, num_rows, comm->parts.data));
    if (!cuda_bring_parts(b, comm->parts.data, part_bytes) || comm->rank > 0)
        return;
    const struct sample_message message = {.excerpts = columns->excerpts + first_row,
                                           .num_rows = num_rows,
                                           .num_ranks = comm->num_ranks};
    struct sample_part *parts = b->sample_parallel->parts.data;
    place_messages(b, part_bytes, &message, logits,
                   parts + (size_t)first_row * (size_t)comm->num_ranks);
}

void cuda_sample_vocab_parallel(struct backend *base,
                                const struct vocab_parallel_sample_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    int32_t num_rows = args->num_sample_rows;
    CHECK(b->comm != NULL && num_rows <= b->config.limits.max_logit_rows);
    if (num_rows == 0 || !cuda_learn_widths(b, args->num_tokens))
        return;
    const struct sample_row *rows = cuda_sampler_rows(b, args->rows, num_rows);
    const struct cuda_sample_parallel *s = b->sample_parallel;
    plan_messages(b->comm, args->rows, num_rows, s->planned);
    cuda_staging_upload(b, s->excerpts.data, s->planned, (size_t)num_rows * sizeof(*s->planned));
    const struct sample_columns columns = {
        .rows = rows,
        .excerpts = s->excerpts.data,
        .logits = args->share,
        .largest = s->largest.data,
        .masses = s->masses.data,
        .chosen = s->chosen.data,
        .num_rows = num_rows,
        .first_token = args->first_token,
        .width = args->num_tokens,
        .rank = b->comm->rank,
        .num_ranks = b->comm->num_ranks,
    };
    weigh_rows(b, &columns);
    for (int32_t first = 0, end; first < num_rows && CUDA_OK(b); first = end) {
        for (end = first + 1; end < num_rows && !s->planned[end].begins_message;)
            end++;
        send_message(b, &columns, first, end - first,
                     args->sample != NULL
                         ? args->sample->logits + (size_t)first * (size_t)args->sample->vocab_size
                         : NULL);
    }
    const struct sample_parts parts = {.planned = s->planned,
                                       .excerpts = s->excerpts.data,
                                       .parts = s->parts.data,
                                       .largest = s->largest.data,
                                       .num_ranks = b->comm->num_ranks};
    if (args->sample != NULL)
        cuda_sample_by_parts(b, args->sample, &parts);
}
