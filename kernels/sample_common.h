/* Shared by every version of the sample op and the oracle, on the host and in kernels: the random
 * number and the edits of a logit. sampling.h defines both to the bit. */
#ifndef QUIRE_KERNELS_SAMPLE_COMMON_H
#define QUIRE_KERNELS_SAMPLE_COMMON_H

#include "kernels/sampling.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SAMPLE_INLINE static __host__ __device__ __forceinline__
#else
#define SAMPLE_INLINE static inline
#endif

/* Philox 4x32-10: constants and round function of Salmon et al., SC'11, section 3.3 and the
 * Random123 known-answer vectors. */
SAMPLE_INLINE void philox_4x32_10(const uint32_t counter[4], const uint32_t key[2],
                                  uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0, c1 = (uint32_t)p1, c2 = n2, c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Returns the row's random number as a fraction of 2^53, from the first or the second 64 random
 * bits. */
SAMPLE_INLINE uint64_t sample_random_half(uint64_t seed, uint64_t position, int half) {
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t random[4];
    philox_4x32_10(counter, key, random);
    return ((uint64_t)random[2 * half + 1] << 32 | random[2 * half]) >> 11;
}

SAMPLE_INLINE uint64_t sample_random_bits(uint64_t seed, uint64_t position) {
    return sample_random_half(seed, position, 0);
}

/* The row's random number, uniform in [0, 1): the top 53 of the first 64 random bits. */
SAMPLE_INLINE double sample_uniform(uint64_t seed, uint64_t position) {
    return (double)sample_random_bits(seed, position) / 9007199254740992.0;
}

SAMPLE_INLINE bool sample_has_penalties(const struct sample_row *row) {
    const struct sampling_settings *by = &row->settings;
    return row->num_counts > 0 && (by->repetition_penalty != 1.0f ||
                                   by->frequency_penalty != 0.0f || by->presence_penalty != 0.0f);
}

/* Returns whether sample_edit_logits would change anything. */
SAMPLE_INLINE bool sample_has_edits(const struct sample_row *row) {
    return row->mask != SAMPLE_NO_MASK || row->num_biases > 0 || sample_has_penalties(row);
}

SAMPLE_INLINE bool sample_allows(const uint32_t *mask, int32_t token) {
    return mask[token / 32] >> (token % 32) & 1;
}

/* Step 3 of sampling.h for one token. Products go through double, where they are exact, so that no
 * compiler fuses them with the subtraction that follows. */
SAMPLE_INLINE float sample_penalised(const struct sample_row *row, float logit,
                                     int32_t output_count) {
    const struct sampling_settings *by = &row->settings;
    double count = output_count;
    logit = logit > 0 ? logit / by->repetition_penalty
                      : (float)((double)logit * by->repetition_penalty);
    logit -= (float)(by->frequency_penalty * count);
    return logit - (output_count > 0 ? by->presence_penalty : 0.0f);
}

#endif
