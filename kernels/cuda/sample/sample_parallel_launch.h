/* The kernels of the sample_vocab_parallel op: sample_parallel.cu. A rank has the logits of a part
 * of the vocabulary. For each row it makes an EXCERPT for rank 0, whose size all ranks know,
 * because they know the rows. Tokens in excerpts are numbered from the rank's first token.
 *
 * Each launcher enqueues on `stream` and returns cudaGetLastError(). */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_PARALLEL_LAUNCH_H
#define QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_PARALLEL_LAUNCH_H

#include "kernels/cuda/sample/sample_launch.h"

#define SAMPLE_MAX_CANDIDATES 256 /* of a row and rank */

enum excerpt_kind {
    EXCERPT_NOTHING, /* the token is given */
    EXCERPT_TOP,     /* the rank's most probable tokens */
    EXCERPT_DRAWN,   /* the sampled token, from the rank that has it */
    EXCERPT_WHOLE    /* the rank's logits */
};

struct row_excerpt {
    enum excerpt_kind kind;
    int32_t num_candidates; /* struct sample_logit; token -1: none */
    /* Of the rows before it in the same message. */
    int32_t candidates_before, wholes_before;
    bool begins_message;
};

/* Returns the length of the rank's logits of one row, in sample_logits. */
SAMPLE_INLINE int64_t excerpt_whole_length(int32_t width) {
    return ((int64_t)width + 1) / 2;
}

/* Returns where the excerpt is in the message of a rank of that width, in sample_logits. */
SAMPLE_INLINE int64_t excerpt_place(const struct row_excerpt *excerpt, int32_t width) {
    return excerpt->candidates_before + excerpt->wholes_before * excerpt_whole_length(width);
}

/* A rank's part of the rows, in device memory except for the excerpts. */
struct sample_columns {
    const struct sample_row *rows;      /* [num_rows] */
    const struct row_excerpt *excerpts; /* [num_rows] pinned memory */
    const float *logits;                /* [num_rows, width] */
    /* For every rank and row; set only for EXCERPT_DRAWN. */
    const unsigned long long *largest; /* [num_ranks, num_rows] packed as in sample_row.cuh */
    const unsigned long long *masses;  /* likewise */
    int32_t num_rows;
    int32_t width;
    int32_t rank, num_ranks;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the rank's part of `largest`, and, with all of that, of `masses`: out[num_rows]. */
cudaError_t launch_sample_largest(cudaStream_t stream, const struct sample_columns *columns,
                                  unsigned long long *out);
cudaError_t launch_sample_mass(cudaStream_t stream, const struct sample_columns *columns,
                               unsigned long long *out);
/* Writes the message of rows first_row to first_row + num_rows - 1. */
cudaError_t launch_sample_excerpt(cudaStream_t stream, const struct sample_columns *columns,
                                  int32_t first_row, int32_t num_rows,
                                  struct sample_logit *message);
/* Fills in the columns of the rank that sent the message, which begin at `logits`. With the
 * messages of all ranks in place, the sampler finds the same tokens as with the rows' full logits:
 * what no excerpt contains is -INFINITY. */
cudaError_t launch_sample_place(cudaStream_t stream, const struct sample_logit *message,
                                int32_t width, const struct row_excerpt *excerpts, int32_t num_rows,
                                float *logits, int32_t row_stride);

#ifdef __cplusplus
}
#endif

#endif
