/* The kernels of the sample_vocab_parallel op: sample_parallel.cu. A rank has the logits of a part
 * of the vocabulary. For each row it makes an EXCERPT for rank 0, whose size all ranks know,
 * because they know the rows. Tokens in excerpts are numbered from the rank's first token.
 *
 * Each launcher enqueues on `stream` and returns cudaGetLastError(). */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_PARALLEL_LAUNCH_H
#define QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_PARALLEL_LAUNCH_H

#include "kernels/cuda/sample/sample_launch.h"

enum excerpt_kind {
    EXCERPT_NOTHING, /* the token is given */
    EXCERPT_TOP,     /* the rank's most probable tokens */
    EXCERPT_DRAWN,   /* the sampled token, from the rank that has it */
    EXCERPT_GIVEN,   /* the token that is given and reported on, likewise */
    EXCERPT_WHOLE    /* the rank's logits */
};

struct row_excerpt {
    enum excerpt_kind kind;
    bool is_reported;       /* by parts: a struct sample_part follows the candidates */
    int32_t num_candidates; /* struct sample_logit; token -1: none */
    /* Of the rows before it in the same message, the first in sample_logits. */
    int32_t length_before, wholes_before;
    bool begins_message;
};

/* What a rank tells of its part of a row with logprobs. */
struct sample_part {
    unsigned long long mass;      /* at a temperature of 1, by the largest logit of all ranks */
    unsigned long long num_above; /* likelier tokens than the row's; not of EXCERPT_TOP */
    struct sample_logit top[SAMPLE_MAX_LOGPROBS]; /* num_logprobs of them; token -1: none */
};

/* Returns the length of an excerpt, in sample_logits, without the logits of EXCERPT_WHOLE. */
SAMPLE_INLINE int32_t excerpt_length(const struct row_excerpt *excerpt) {
    const int32_t part_length = (int32_t)(sizeof(struct sample_part) / sizeof(struct sample_logit));
    return excerpt->num_candidates + (excerpt->is_reported ? part_length : 0);
}

/* Returns the length of the rank's logits of one row, in sample_logits. */
SAMPLE_INLINE int64_t excerpt_whole_length(int32_t width) {
    return ((int64_t)width + 1) / 2;
}

/* Returns where the excerpt is in the message of a rank of that width, in sample_logits. */
SAMPLE_INLINE int64_t excerpt_place(const struct row_excerpt *excerpt, int32_t width) {
    return excerpt->length_before + excerpt->wholes_before * excerpt_whole_length(width);
}

/* A rank's part of the rows, in device memory. */
struct sample_columns {
    const struct sample_row *rows;      /* [num_rows] */
    const struct row_excerpt *excerpts; /* [num_rows] */
    const float *logits;                /* [num_rows, width] */
    /* For every rank and row, [num_ranks, num_rows]; packed: as in sample_row.cuh. */
    const unsigned long long *largest; /* packed; for EXCERPT_DRAWN and reported rows */
    const unsigned long long *masses;  /* for EXCERPT_DRAWN */
    const unsigned long long *chosen;  /* packed, 0: another rank has the row's token; for reported
                                          rows that are not EXCERPT_TOP */
    int32_t num_rows;
    int32_t first_token; /* of this rank */
    int32_t width;
    int32_t rank, num_ranks;
};

/* A rank's message for some rows, as rank 0 has received it. */
struct sample_message {
    const struct sample_logit *data;
    int32_t first_token, width; /* of the rank */
    int32_t rank, num_ranks;
    const struct row_excerpt *excerpts; /* [num_rows] */
    int32_t num_rows;
};

/* What all ranks have told of the rows that are reported by parts. */
struct sample_parts {
    const struct row_excerpt *planned;  /* [num_rows] the excerpts, in the host's memory */
    const struct row_excerpt *excerpts; /* [num_rows] */
    const struct sample_part *parts;    /* [num_rows, num_ranks]; tokens of the whole vocabulary */
    const unsigned long long *largest;  /* as in sample_columns */
    int32_t num_ranks;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the rank's part of `largest`, and, with all of that, of `masses`: out[num_rows]. */
cudaError_t launch_sample_largest(cudaStream_t stream, const struct sample_columns *columns,
                                  unsigned long long *out);
cudaError_t launch_sample_mass(cudaStream_t stream, const struct sample_columns *columns,
                               unsigned long long *out);
/* Writes, with all of that, the rank's part of `chosen`: out[num_rows]. */
cudaError_t launch_sample_chosen(cudaStream_t stream, const struct sample_columns *columns,
                                 unsigned long long *out);
/* Writes the message of rows first_row to first_row + num_rows - 1. */
cudaError_t launch_sample_excerpt(cudaStream_t stream, const struct sample_columns *columns,
                                  int32_t first_row, int32_t num_rows,
                                  struct sample_logit *message);
/* Fills in the columns of the rank that sent the message, which begin at `logits`, and its parts of
 * the reports, which begin with the first row's. With the messages of all ranks in place, the
 * sampler finds the same tokens as with the rows' full logits: what no excerpt contains is
 * -INFINITY. */
cudaError_t launch_sample_place(cudaStream_t stream, const struct sample_message *message,
                                float *logits, int32_t row_stride, struct sample_part *parts);
/* Like launch_sample_report, of the rows that are reported by parts; the others are left as they
 * are. The result is that of the whole rows. */
cudaError_t launch_sample_report_parts(cudaStream_t stream, const struct sample_tensors *tensors,
                                       const struct sample_parts *parts);

#ifdef __cplusplus
}
#endif

#endif
