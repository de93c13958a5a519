/* The sample op: rows, their masks and their sparse edits go to the device, tokens and the
 * logprobs requested come back. Biases, counted tokens and listed ones go in chunks, a launch each,
 * so that any number of them fits: first every row's biases, then every row's penalties, and once
 * all rows are sampled the listed tokens, whose logprobs come back chunk by chunk. */
#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/numbers.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/step/cuda_staging.h"
#include "kernels/cuda/sample/sample_parallel_launch.h"

#include <stdlib.h>
#include <string.h>

#define EDITS_PER_CHUNK (1 << 15)
#define LISTED_PER_CHUNK 8192

struct cuda_sampler {
    struct buffer rows;            /* struct sample_row [max_logit_rows] */
    struct buffer outputs;         /* struct sample_output [max_logit_rows] */
    struct buffer edited;          /* float [max_logit_rows, padded_vocab] */
    struct buffer masks;           /* uint32_t [max_logit_rows][SAMPLE_MASK_WORDS(vocab_size)] */
    struct buffer log_totals;      /* double [max_logit_rows] */
    struct buffer scratch;         /* struct sample_scratch [max_logit_rows] */
    struct buffer listed;          /* struct sample_listed [LISTED_PER_CHUNK] */
    struct buffer listed_logprobs; /* float [LISTED_PER_CHUNK] */
    struct sample_listed list[LISTED_PER_CHUNK];
    int32_t list_length;
    float *list_out; /* host address of the first one's logprob; the others' follow it */
};

/* Lists what a call needs done. */
struct plan {
    bool copies, reports, shapes;
    bool reports_parts;           /* reports: of other rows */
    bool is_whole;                /* outputs come back whole, not their tokens alone */
    int32_t first_mask, end_mask; /* the masks that rows name; equal: none */
    struct sample_choice choice;
};

/* Logits of a row, with the padding that the head gives them. */
static size_t padded_vocab(const struct cuda_backend *b) {
    size_t vocab = (size_t)b->config.limits.vocab_size, step = CUDA_HEAD_ROWS_STEP;
    return (vocab + step - 1) / step * step;
}

static int alloc_buffers(struct cuda_backend *b, struct error *err) {
    struct cuda_sampler *s = b->sampler;
    size_t num_rows = (size_t)b->config.limits.max_logit_rows,
           vocab = (size_t)b->config.limits.vocab_size;
    size_t words = SAMPLE_MASK_WORDS(vocab), logits, logits_bytes, mask_bytes, output_bytes,
           scratch_bytes;
    if (!checked_mul(num_rows, padded_vocab(b), &logits) ||
        !checked_mul(logits, sizeof(float), &logits_bytes) ||
        !checked_mul(num_rows, words * sizeof(uint32_t), &mask_bytes) ||
        !checked_mul(num_rows, sizeof(struct sample_output), &output_bytes) ||
        !checked_mul(num_rows, sizeof(struct sample_scratch), &scratch_bytes))
        return error_set(err, ERROR_MEMORY, "%d rows of %d logits are too many",
                         b->config.limits.max_logit_rows, b->config.limits.vocab_size);
    if (cuda_buffer_alloc(&b->base, num_rows * sizeof(struct sample_row), &s->rows, err) != 0 ||
        cuda_buffer_alloc(&b->base, output_bytes, &s->outputs, err) != 0 ||
        cuda_buffer_alloc(&b->base, logits_bytes, &s->edited, err) != 0 ||
        cuda_buffer_alloc(&b->base, mask_bytes, &s->masks, err) != 0 ||
        cuda_buffer_alloc(&b->base, num_rows * sizeof(double), &s->log_totals, err) != 0 ||
        cuda_buffer_alloc(&b->base, scratch_bytes, &s->scratch, err) != 0 ||
        cuda_buffer_alloc(&b->base, sizeof(s->list), &s->listed, err) != 0 ||
        cuda_buffer_alloc(&b->base, LISTED_PER_CHUNK * sizeof(float), &s->listed_logprobs, err) !=
            0)
        return -1;
    return 0;
}

int cuda_sampler_create(struct cuda_backend *b, struct error *err) {
    if (b->config.limits.max_logit_rows < 0 || b->config.limits.vocab_size < 0 ||
        b->config.limits.vocab_size > SAMPLE_MAX_VOCAB)
        return error_set(err, ERROR_CONFIG,
                         "cuda device: %d rows of logits, a vocabulary of %d; there must be >= 0 "
                         "rows of 0 to %d",
                         b->config.limits.max_logit_rows, b->config.limits.vocab_size,
                         SAMPLE_MAX_VOCAB);
    b->sampler = calloc(1, sizeof(*b->sampler));
    if (b->sampler == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for the cuda device");
    return alloc_buffers(b, err);
}

void cuda_sampler_destroy(struct cuda_backend *b) {
    if (b->sampler == NULL)
        return;
    cuda_buffer_free(&b->base, &b->sampler->rows);
    cuda_buffer_free(&b->base, &b->sampler->outputs);
    cuda_buffer_free(&b->base, &b->sampler->edited);
    cuda_buffer_free(&b->base, &b->sampler->masks);
    cuda_buffer_free(&b->base, &b->sampler->log_totals);
    cuda_buffer_free(&b->base, &b->sampler->scratch);
    cuda_buffer_free(&b->base, &b->sampler->listed);
    cuda_buffer_free(&b->base, &b->sampler->listed_logprobs);
    free(b->sampler);
    b->sampler = NULL;
}

static void plan_mask(struct plan *plan, int32_t mask) {
    bool is_first = plan->first_mask == plan->end_mask;
    plan->first_mask = is_first || mask < plan->first_mask ? mask : plan->first_mask;
    plan->end_mask = is_first || mask >= plan->end_mask ? mask + 1 : plan->end_mask;
}

static struct plan plan_call(const struct sample_args *args, const struct sample_parts *parts,
                             int32_t num_multiprocessors) {
    struct plan plan = {.choice.num_ranges = sample_num_ranges(
                            args->num_sample_rows, args->vocab_size, num_multiprocessors)};
    for (int32_t r = 0; r < args->num_sample_rows; r++) {
        const struct sample_row *row = &args->rows[r];
        plan.copies |= sample_is_copied(row);
        bool has_parts = parts != NULL && parts->planned[r].is_reported;
        plan.reports_parts |= has_parts;
        plan.reports |= row->num_logprobs >= 0 && !has_parts;
        plan.shapes |= sample_is_shaped(row);
        plan.is_whole |=
            row->num_logprobs >= 0 || (sample_is_shaped(row) && row->settings.mirostat != 0);
        plan.choice.any_drawn |= sample_is_drawn(row);
        plan.choice.any_cut |= sample_is_cut(row, args->vocab_size);
        if (sample_is_masked(row))
            plan_mask(&plan, row->mask);
    }
    return plan;
}

static void send_masks(struct cuda_backend *b, const struct sample_args *args,
                       const struct plan *plan) {
    size_t words = (size_t)SAMPLE_MASK_WORDS(args->vocab_size);
    size_t count = (size_t)(plan->end_mask - plan->first_mask);
    CHECK(count * words * sizeof(uint32_t) <= b->sampler->masks.bytes);
    if (count > 0)
        cuda_staging_upload(b, b->sampler->masks.data,
                            args->masks + (size_t)plan->first_mask * words,
                            count * words * sizeof(uint32_t));
}

/* Edits of one kind in pinned memory, from where a kernel reads them. */
struct edit_chunk {
    struct sample_edits edits;
    int32_t capacity; /* of edits.items */
};

static int32_t num_edits(const struct sample_row *row, enum sample_edit_kind kind) {
    if (!sample_is_edited(row))
        return 0;
    if (kind == SAMPLE_EDIT_BIAS)
        return row->num_biases;
    return sample_has_penalties(row) ? row->num_counts : 0;
}

static const void *edits_of(const struct sample_args *args, const struct sample_row *row,
                            enum sample_edit_kind kind) {
    return kind == SAMPLE_EDIT_BIAS ? (const void *)(args->biases + row->first_bias)
                                    : (const void *)(args->counts + row->first_count);
}

/* For as many edits of the call's rows as are left, or as fit. */
static bool begin_chunk(struct cuda_backend *b, struct edit_chunk *chunk, int32_t num_rows,
                        int64_t num_left) {
    size_t ranges_bytes = (size_t)num_rows * sizeof(*chunk->edits.ranges);
    chunk->capacity = num_left < EDITS_PER_CHUNK ? (int32_t)num_left : EDITS_PER_CHUNK;
    chunk->edits.num_ranges = chunk->edits.num_items = 0;
    chunk->edits.ranges =
        cuda_staging_reserve(b, ranges_bytes + (size_t)chunk->capacity * SAMPLE_EDIT_BYTES);
    chunk->edits.items = (char *)chunk->edits.ranges + ranges_bytes;
    return CUDA_OK(b);
}

static void add_edits(struct edit_chunk *chunk, int32_t row, const void *edits, int32_t count) {
    struct sample_edits *to = &chunk->edits;
    to->ranges[to->num_ranges++] = (struct sample_edit_range){row, to->num_items, count};
    memcpy((char *)to->items + (size_t)to->num_items * SAMPLE_EDIT_BYTES, edits,
           (size_t)count * SAMPLE_EDIT_BYTES);
    to->num_items += count;
}

static void send_edits(struct cuda_backend *b, const struct sample_args *args,
                       const struct sample_tensors *tensors, enum sample_edit_kind kind) {
    struct edit_chunk chunk = {0};
    int64_t num_left = 0;
    for (int32_t r = 0; r < args->num_sample_rows; r++)
        num_left += num_edits(&args->rows[r], kind);
    for (int32_t r = 0; r < args->num_sample_rows; r++) {
        const char *edits = edits_of(args, &args->rows[r], kind);
        int32_t n = num_edits(&args->rows[r], kind);
        for (int32_t done = 0, count; done < n; done += count) {
            bool is_full = chunk.edits.num_items == chunk.capacity;
            if (is_full && !begin_chunk(b, &chunk, args->num_sample_rows, num_left))
                return;
            count = min_int32(n - done, chunk.capacity - chunk.edits.num_items);
            add_edits(&chunk, r, edits + (size_t)done * SAMPLE_EDIT_BYTES, count);
            num_left -= count;
            if (chunk.edits.num_items == chunk.capacity)
                CUDA_TRY(b, launch_sample_edit(b->stream, tensors, &chunk.edits, kind));
        }
    }
}

static void fetch_list(struct cuda_backend *b, const struct sample_tensors *tensors) {
    struct cuda_sampler *s = b->sampler;
    size_t count = (size_t)s->list_length;
    if (count == 0)
        return;
    cuda_staging_upload(b, s->listed.data, s->list, count * sizeof(s->list[0]));
    CUDA_TRY(b, launch_sample_list(b->stream, tensors, s->listed.data, s->list_length,
                                   s->listed_logprobs.data));
    cuda_staging_download(b, s->list_out, s->listed_logprobs.data, count * sizeof(float));
    s->list_length = 0;
}

static void fetch_listed(struct cuda_backend *b, const struct sample_args *args,
                         const struct sample_tensors *tensors) {
    struct cuda_sampler *s = b->sampler;
    for (int32_t r = 0; r < args->num_sample_rows; r++) {
        const struct sample_row *row = &args->rows[r];
        for (int32_t i = 0; row->num_logprobs >= 0 && i < row->num_listed; i++) {
            float *out = args->listed_logprobs + row->first_listed_logprob + i;
            if (s->list_length == LISTED_PER_CHUNK || out != s->list_out + s->list_length)
                fetch_list(b, tensors);
            if (s->list_length == 0)
                s->list_out = out;
            s->list[s->list_length++] =
                (struct sample_listed){r, args->listed[row->first_listed + i]};
        }
    }
    fetch_list(b, tensors);
}

static void fetch_outputs(struct cuda_backend *b, const struct sample_args *args) {
    const struct sample_output *outputs = b->sampler->outputs.data;
    int32_t most = (int32_t)(CUDA_STAGING_DOWNLOAD_BYTES / sizeof(outputs[0]));
    for (int32_t first = 0; first < args->num_sample_rows; first += most) {
        int32_t n = args->num_sample_rows - first < most ? args->num_sample_rows - first : most;
        cuda_staging_download(b, args->out + first, outputs + first,
                              (size_t)n * sizeof(outputs[0]));
    }
}

const struct sample_row *cuda_sampler_rows(struct cuda_backend *b, const struct sample_row *rows,
                                           int32_t num_rows) {
    const struct sample_row *sent = cuda_step_sample_rows(b, rows);
    if (sent != NULL)
        return sent;
    cuda_staging_upload(b, b->sampler->rows.data, rows, (size_t)num_rows * sizeof(*rows));
    return b->sampler->rows.data;
}

void cuda_sample(struct backend *base, const struct sample_args *args) {
    cuda_sample_by_parts(cuda_state_of(base), args, NULL);
}

void cuda_sample_by_parts(struct cuda_backend *b, const struct sample_args *args,
                          const struct sample_parts *parts) {
    struct cuda_sampler *s = b->sampler;
    CHECK(args->num_sample_rows <= b->config.limits.max_logit_rows &&
          args->vocab_size <= b->config.limits.vocab_size);
    CHECK(args->padding >= 0 &&
          (size_t)args->vocab_size + (size_t)args->padding <= padded_vocab(b));
    CHECK(args->first_row + args->num_sample_rows <=
          serving_limits_max_sample_rows(&b->config.limits));
    if (args->num_sample_rows == 0)
        return;
    struct plan plan = plan_call(args, parts, b->num_multiprocessors);
    struct backend_paths *paths = &b->base.paths;
    paths->max_sample_ranges = max_int32(paths->max_sample_ranges, plan.choice.num_ranges);
    const struct sample_tensors tensors = {
        .rows = cuda_sampler_rows(b, args->rows, args->num_sample_rows),
        .logits = args->logits,
        .edited = s->edited.data,
        .masks = s->masks.data,
        .out = s->outputs.data,
        .sampled_tokens = (int32_t *)b->step.sampled_tokens.data + args->first_row,
        .log_totals = s->log_totals.data,
        .scratch = s->scratch.data,
        .num_rows = args->num_sample_rows,
        .vocab_size = args->vocab_size,
        .row_stride = args->vocab_size + args->padding,
        .first_mask = plan.first_mask};
    send_masks(b, args, &plan);
    if (plan.copies || plan.first_mask < plan.end_mask)
        CUDA_TRY(b, launch_sample_mask(b->stream, &tensors));
    send_edits(b, args, &tensors, SAMPLE_EDIT_BIAS);
    send_edits(b, args, &tensors, SAMPLE_EDIT_PENALTY);
    CUDA_TRY(b, launch_sample_choose(b->stream, &tensors, &plan.choice));
    if (plan.shapes)
        CUDA_TRY(b, launch_sample_shape(b->stream, &tensors));
    if (plan.reports)
        CUDA_TRY(b, launch_sample_report(b->stream, &tensors));
    if (plan.reports_parts)
        CUDA_TRY(b, launch_sample_report_parts(b->stream, &tensors, parts));
    if (plan.is_whole)
        fetch_outputs(b, args);
    else
        cuda_staging_download_tokens(b, args->out, tensors.sampled_tokens, args->num_sample_rows);
    if (plan.reports)
        fetch_listed(b, args, &tensors);
}
