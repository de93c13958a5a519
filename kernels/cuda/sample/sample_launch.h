/* The kernels of the sample op: sample_edit.cu, sample_choose.cu, sample_shape.cu,
 * sample_report.cu. Each launcher enqueues on `stream` and returns cudaGetLastError(); num_rows >
 * 0. */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_LAUNCH_H
#define QUIRE_KERNELS_CUDA_SAMPLE_SAMPLE_LAUNCH_H

#include "kernels/sample_shape.h"

#include <cuda_runtime_api.h>

/* Weights are multiples of 2^-42 of the most probable token's, so that any sum of a row's fits in
 * 63 bits and is exact. */
#define SAMPLE_WEIGHT_BITS 42
#define SAMPLE_MAX_VOCAB ((1 << (63 - SAMPLE_WEIGHT_BITS)) - 1)

/* A row of logits is cut into ranges, a block each, and a range into chunks, a warp each. Greedy
 * rows take one launch, sampled ones two, those with top-k or top-p three; with one range, a block
 * goes through all stages in one launch. Reports of logprobs take one block per row, and so do rows
 * with sampling steps of llama.cpp (sample_shape.cu), in a separate launch. */
#define SAMPLE_MAX_RANGES 32
#define SAMPLE_MIN_RANGE 4096 /* tokens of one, where there are several */
#define SAMPLE_WARPS 16       /* of a block */
#define SAMPLE_MAX_CHUNKS (SAMPLE_MAX_RANGES * SAMPLE_WARPS)
#define SAMPLE_BINS 512
#define SAMPLE_MAX_UNDECIDED 2048

struct sample_logit {
    float logit;
    int32_t token;
};

/* Logits in integer order; low > high: none. */
struct sample_keys {
    uint32_t low, high;
};

/* What a row's table of bins says about the tokens, before the exact cuts are known. */
struct sample_undecided {
    bool is_listed; /* the undecided tokens are few enough to be listed; otherwise nothing below is
                       set */
    uint32_t kept_above;        /* all tokens with larger keys are kept */
    struct sample_keys keys[2]; /* tokens with keys in here may be kept; the others are not */
};

/* What the blocks of one row communicate, within a launch and from one to the next. */
struct sample_scratch {
    /* Zero between rows. */
    unsigned long long best; /* packed as in sample_row.cuh */
    unsigned long long bin_masses[SAMPLE_BINS];
    uint32_t bin_counts[SAMPLE_BINS];
    int32_t num_done; /* finished blocks of those that work on the same row */
    int32_t num_undecided;
    /* Written before they are read. */
    bool is_sampled; /* otherwise the token is known */
    float max;       /* the largest logit */
    float bound;     /* no logit below it is kept */
    struct sample_undecided undecided;
    uint64_t chunk_sums[SAMPLE_MAX_CHUNKS]; /* sums of the weights of the tokens surely kept */
    struct sample_logit undecided_tokens[SAMPLE_MAX_UNDECIDED]; /* in any order */
};

/* Device memory, all of it. */
struct sample_tensors {
    const struct sample_row *rows; /* [num_rows] */
    float *logits; /* [num_rows, row_stride]; edited in place if nobody reads the raw ones */
    float *edited; /* [num_rows, row_stride]; rows with edits and logprobs */
    const uint32_t *masks;          /* [..][SAMPLE_MASK_WORDS(vocab_size)], from first_mask on */
    struct sample_output *out;      /* [num_rows] */
    int32_t *sampled_tokens;        /* [num_rows] device copy of out[].token */
    double *log_totals;             /* [num_rows] of the rows that are reported on */
    struct sample_scratch *scratch; /* [num_rows], zero before the first launch of all */
    int32_t num_rows;
    int32_t vocab_size;
    int32_t row_stride; /* >= vocab_size; the rest is not read */
    int32_t first_mask;
};

struct sample_edit_range {
    int32_t row;
    int32_t first, count; /* of the items */
};

/* Biases, or tokens that penalties hit, of several rows, in pinned memory. No two of one launch are
 * of the same row and token. */
struct sample_edits {
    struct sample_edit_range *ranges; /* [num_ranges] */
    void *items;                      /* [num_items] struct token_bias, or struct token_count */
    int32_t num_ranges, num_items;
};

#define SAMPLE_EDIT_BYTES 8 /* of an item of either kind */

/* A token whose logprob is reported. */
struct sample_listed {
    int32_t row;
    int32_t token;
};

enum sample_edit_kind { SAMPLE_EDIT_BIAS, SAMPLE_EDIT_PENALTY };

/* The row's logits change before it is sampled. */
SAMPLE_INLINE bool sample_is_edited(const struct sample_row *row) {
    return row->target == SAMPLE_NO_TARGET && sample_has_edits(row);
}

/* Its edits are made on a copy, because its logprobs need the raw logits. */
SAMPLE_INLINE bool sample_is_copied(const struct sample_row *row) {
    return sample_is_edited(row) && row->num_logprobs >= 0;
}

/* A mask says which tokens may be sampled. */
SAMPLE_INLINE bool sample_is_masked(const struct sample_row *row) {
    return row->target == SAMPLE_NO_TARGET && row->mask != SAMPLE_NO_MASK;
}

/* Its token is sampled at random, unless no token is allowed; not for a row that
 * sample_is_shaped. */
SAMPLE_INLINE bool sample_is_drawn(const struct sample_row *row) {
    return row->target == SAMPLE_NO_TARGET && row->settings.temperature > 0 &&
           !sample_is_shaped(row);
}

SAMPLE_INLINE bool sample_has_top_k(const struct sample_row *row, int32_t vocab_size) {
    return row->settings.top_k > 0 && row->settings.top_k < vocab_size;
}

SAMPLE_INLINE bool sample_has_cut(const struct sample_row *row, int32_t vocab_size) {
    return sample_has_top_k(row, vocab_size) || row->settings.top_p < 1;
}

/* It is sampled from what top_k or top_p keep. */
SAMPLE_INLINE bool sample_is_cut(const struct sample_row *row, int32_t vocab_size) {
    return sample_is_drawn(row) && sample_has_cut(row, vocab_size);
}

/* What launch_sample_choose has to do. */
struct sample_choice {
    bool any_drawn, any_cut; /* of the rows */
    int32_t num_ranges;      /* that each row is cut into */
};

/* Returns enough ranges to keep every multiprocessor busy. */
SAMPLE_INLINE int32_t sample_num_ranges(int32_t num_rows, int32_t vocab_size,
                                        int32_t num_multiprocessors) {
    int32_t wanted = (num_multiprocessors + num_rows - 1) / num_rows;
    int32_t most = vocab_size / SAMPLE_MIN_RANGE;
    most = most < SAMPLE_MAX_RANGES ? most : SAMPLE_MAX_RANGES;
    wanted = wanted < most ? wanted : most;
    return wanted > 1 ? wanted : 1;
}

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `edited` where sample_is_copied, and bans what masks do not allow; before other edits. */
cudaError_t launch_sample_mask(cudaStream_t stream, const struct sample_tensors *tensors);
/* Changes the logits the rows are sampled from; biases go before penalties. */
cudaError_t launch_sample_edit(cudaStream_t stream, const struct sample_tensors *tensors,
                               const struct sample_edits *edits, enum sample_edit_kind kind);
/* Writes out[].token and sampled_tokens of all rows except those that sample_is_shaped; the result
 * does not depend on the number of ranges. Takes one launch when rows have one range or none is
 * drawn, otherwise two, or three when one is cut. */
cudaError_t launch_sample_choose(cudaStream_t stream, const struct sample_tensors *tensors,
                                 const struct sample_choice *choice);
/* The same for the rows that sample_is_shaped, with mirostat_mu, in one launch. */
cudaError_t launch_sample_shape(cudaStream_t stream, const struct sample_tensors *tensors);
/* Writes the rest of out[] where logprobs are requested; the tokens are there. */
cudaError_t launch_sample_report(cudaStream_t stream, const struct sample_tensors *tensors);
/* Writes the logprobs of these tokens, of rows that were reported on. */
cudaError_t launch_sample_list(cudaStream_t stream, const struct sample_tensors *tensors,
                               const struct sample_listed *listed, int32_t num_listed,
                               float *logprobs);

#ifdef __cplusplus
}
#endif

#endif
