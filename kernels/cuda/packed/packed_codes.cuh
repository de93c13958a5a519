/* Reads chunks of packed weights and unpacks them in registers (packed_layout.h). Codes become
 * pairs of T that are exact; scales and mins become floats. */
#ifndef QUIRE_KERNELS_CUDA_PACKED_PACKED_CODES_CUH
#define QUIRE_KERNELS_CUDA_PACKED_PACKED_CODES_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/kv_codes.cuh"
#include "kernels/cuda/packed/packed_layout.h"

/* A form's properties, as constants of their own: device code can use no others. */
template <int F> struct form_of {
    static constexpr packed_form form = packed_forms[F];
    static constexpr int low_bits = form.low_bits, high_bits = form.high_bits, zero = form.zero;
    static constexpr packed_codes codes = form.codes;
    static constexpr packed_factor factor = form.factor;
    static constexpr int block = form.block, group = form.group;
    static constexpr bool has_min = form.has_min, has_zero = form.has_zero;
    static constexpr bool has_nibbles = form.has_nibbles;
    /* Bytes of a chunk in each plane; those of factors are of two chunks if a block is. */
    static constexpr int low_bytes = packed_pair_bytes(&form, PACKED_LOW) / 2;
    static constexpr int high_bytes = packed_pair_bytes(&form, PACKED_HIGH) / 2;
    static constexpr int scale_bytes = packed_pair_bytes(&form, PACKED_SCALES) / 2;
    static constexpr int factor_bytes =
        packed_pair_bytes(&form, PACKED_FACTORS) / (block > PACKED_CHUNK ? 1 : 2);
    static constexpr int zero_bytes = packed_pair_bytes(&form, PACKED_ZEROS) / 2;
};

/* In place of a form: weights in rows of the activations' type. */
constexpr int PLAIN = -1;
template <> struct form_of<PLAIN> {
    static constexpr int group = 0;
    static constexpr bool has_min = false;
};

/* Likewise: weights of E4M3, with activations of E4M3, for the tensor cores of sm_89 and later. */
constexpr int FP8 = -2;
template <> struct form_of<FP8> : form_of<packed_form_index(DTYPE_E4M3_128)> {};

constexpr int words_of(int bytes) {
    return bytes < 4 ? 1 : bytes / 4;
}

/* What a lane needs of a chunk of a row. */
template <int F> struct chunk_words {
    uint32_t low[words_of(form_of<F>::low_bytes / 4)];
    uint32_t high[words_of(form_of<F>::high_bytes / 4)];
    uint32_t scales[words_of(form_of<F>::scale_bytes)];
    uint32_t mins[words_of(form_of<F>::scale_bytes)];
    uint32_t factors[words_of(form_of<F>::factor_bytes)];
    uint32_t zeros;
};

template <> struct chunk_words<PLAIN> { uint32_t pairs[PACKED_CHUNK / 32][4]; };

/* Bytes of an address that is a multiple of their number, or of 16. */
template <int BYTES, int N>
__device__ __forceinline__ void load_words(uint32_t (&out)[N], const uint8_t *p) {
    if constexpr (BYTES == 1)
        out[0] = load_weights(p);
    else if constexpr (BYTES == 2)
        out[0] = load_weights(reinterpret_cast<const uint16_t *>(p));
    else if constexpr (BYTES == 4)
        out[0] = load_weights(reinterpret_cast<const uint32_t *>(p));
    else if constexpr (BYTES == 8) {
        uint2 words = load_weights(reinterpret_cast<const uint2 *>(p));
        out[0] = words.x, out[1] = words.y;
    } else if constexpr (BYTES > 0)
#pragma unroll
        for (int i = 0; i < BYTES / 16; i++) {
            uint4 words = load_weights(reinterpret_cast<const uint4 *>(p) + i);
            out[4 * i] = words.x, out[4 * i + 1] = words.y;
            out[4 * i + 2] = words.z, out[4 * i + 3] = words.w;
        }
}

__host__ __device__ __forceinline__ int num_chunks_of(int cols) {
    return (cols + PACKED_CHUNK - 1) / PACKED_CHUNK;
}

/* t: the lane's, below 4. */
template <int F>
__device__ __forceinline__ void load_chunk(chunk_words<F> &out, const packed_planes &planes,
                                           int row, int cols, int chunk, int t) {
    using form = form_of<F>;
    const uint32_t index = (uint32_t)row * num_chunks_of(cols) + chunk;
    const size_t at = index, block_at = form::block > PACKED_CHUNK ? index / 2 : index;
    uint32_t zeros[1] = {};
    load_words<form::low_bytes / 4>(out.low, planes.at[PACKED_LOW] + at * form::low_bytes +
                                                 t * (form::low_bytes / 4));
    load_words<form::high_bytes / 4>(out.high, planes.at[PACKED_HIGH] + at * form::high_bytes +
                                                   t * (form::high_bytes / 4));
    load_words<form::scale_bytes>(out.scales, planes.at[PACKED_SCALES] + at * form::scale_bytes);
    if constexpr (form::has_nibbles)
#pragma unroll
        for (int i = 0; i < words_of(form::scale_bytes); i++) {
            out.mins[i] = out.scales[i] >> 4 & 0x0f0f0f0f;
            out.scales[i] &= 0x0f0f0f0f;
        }
    else if constexpr (form::has_min)
        load_words<form::scale_bytes>(out.mins, planes.at[PACKED_MINS] + at * form::scale_bytes);
    load_words<form::factor_bytes>(out.factors,
                                   planes.at[PACKED_FACTORS] + block_at * form::factor_bytes);
    load_words<form::zero_bytes>(zeros, planes.at[PACKED_ZEROS] + at * form::zero_bytes);
    out.zeros = zeros[0];
}

/* Columns past the end are zeros; their number is a multiple of 8. */
__device__ __forceinline__ void load_chunk(chunk_words<PLAIN> &out, const packed_planes &planes,
                                           int row, int cols, int chunk, int t) {
    const int column = chunk * PACKED_CHUNK + 8 * t;
    const uint8_t *at = planes.at[PACKED_LOW] + 2 * ((size_t)row * cols + column);
#pragma unroll
    for (int j = 0; j < PACKED_CHUNK / 32; j++) {
        const bool is_there = column + 32 * j < cols;
        const uint4 pairs = is_there ? load_weights(reinterpret_cast<const uint4 *>(at) + 4 * j)
                                     : make_uint4(0, 0, 0, 0);
        out.pairs[j][0] = pairs.x, out.pairs[j][1] = pairs.y;
        out.pairs[j][2] = pairs.z, out.pairs[j][3] = pairs.w;
    }
}

/* --- Scales --- */

__device__ __forceinline__ uint32_t byte_of(uint32_t word, int i) {
    return word >> 8 * i & 0xff;
}

/* Byte i times a factor, rounded once, without the slow conversion of integers: 2^23 has a last bit
 * worth 1, where the byte is put. */
__device__ __forceinline__ float times_byte(float factor, const uint32_t *words, int i) {
    const uint32_t bits = __byte_perm(words[i / 4], 0x4b000000, 0x7440 | (i & 3));
    return fmaf(__uint_as_float(bits), factor, -8388608.0f * factor);
}
/* The same of a byte that is 128 too large. */
__device__ __forceinline__ float times_signed(float factor, const uint32_t *words, int i) {
    const uint32_t bits = __byte_perm(words[i / 4], 0x4b000000, 0x7440 | (i & 3));
    return (__uint_as_float(bits) - 8388736.0f) * factor;
}

__device__ __forceinline__ float half_of(const uint32_t *words, int i) {
    return to_float(__ushort_as_half((unsigned short)(words[i / 2] >> 16 * (i % 2))));
}

/* Factor i of a chunk, of those with a min 2 i and 2 i + 1. */
template <int F> __device__ __forceinline__ float factor_of(const chunk_words<F> &words, int i) {
    if constexpr (form_of<F>::factor == PACKED_F32)
        return __uint_as_float(words.factors[i]);
    if constexpr (form_of<F>::factor == PACKED_E8M0) { /* half of it, subnormal below 2 */
        uint32_t exponent = byte_of(words.factors[0], i);
        return __uint_as_float(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
    }
    return half_of(words.factors, i);
}

/* What the codes are unpacked without; those of FP8 stay as they are. */
template <int F>
constexpr float code_unit =
    F != FP8 &&form_of<F>::codes == PACKED_E4M3 ? kv_code_unit<KV_E4M3> : 1.0f;

/* Of the columns 32 j + 16 half and those after it with the same scale. */
template <int F>
__device__ __forceinline__ float scale_at(const chunk_words<F> &words, int j, int half) {
    using form = form_of<F>;
    constexpr int block = form::block < PACKED_CHUNK ? form::block : PACKED_CHUNK;
    const float d = factor_of<F>(words, 32 * j / block * (form::has_min ? 2 : 1)) * code_unit<F>;
    if constexpr (form::group == 0)
        return d;
    const int i = form::group == 16 ? 2 * j + half : j;
    return form::has_min ? times_byte(d, words.scales, i) : times_signed(d, words.scales, i);
}

template <int F>
__device__ __forceinline__ float min_at(const chunk_words<F> &words, int j, int half) {
    using form = form_of<F>;
    constexpr int block = form::block < PACKED_CHUNK ? form::block : PACKED_CHUNK;
    const float m = factor_of<F>(words, 32 * j / block * 2 + 1);
    if constexpr (form::group == 0)
        return m;
    return times_byte(m, words.mins, form::group == 16 ? 2 * j + half : j);
}

/* --- Codes --- */

/* A number whose last bit is worth 1, twice: small integers are put into its last bits. */
template <class T> constexpr uint32_t ones_bit = 0;
template <> inline constexpr uint32_t ones_bit<__half> = 0x64006400;        /* 1024 */
template <> inline constexpr uint32_t ones_bit<__nv_bfloat16> = 0x43004300; /* 128 */

/* What is subtracted from the pairs of group j. A 4-bit type's zero point is below 128. */
template <int F, class T>
__device__ __forceinline__ uint32_t zero_pair(const chunk_words<F> &words, int j) {
    using form = form_of<F>;
    if constexpr (!form::has_zero)
        return ones_bit<T> + form::zero * 0x00010001u;
    const uint32_t zero = byte_of(words.zeros, 32 * j / form::block);
    if constexpr (form::low_bits == 8) {
        const float shifted = (float)(int32_t)zero - 128.0f;
        return pack2<T>(shifted, shifted);
    }
    return ones_bit<T> + zero * 0x00010001u;
}

/* The four bytes of quant_levels_iq4_nl that the low 16 bits of a word name. */
__device__ __forceinline__ uint32_t iq4_nl_levels(uint32_t nibbles) {
    const uint32_t in_half = nibbles & 0x7777;
    const uint32_t low = __byte_perm(0xbfad9881, 0xf6eaddcf, in_half);
    const uint32_t high = __byte_perm(0x26190d01, 0x71594535, in_half);
    return __byte_perm(low, high, 0x3210 | (nibbles & 0x8888) >> 1);
}

template <class T>
__device__ __forceinline__ void unpack_iq4_nl(uint32_t (&out)[4], uint32_t word) {
    const uint32_t even = iq4_nl_levels(word & 0xffff), odd = iq4_nl_levels(word >> 16);
    const uint32_t first = __byte_perm(even, odd, 0x5140), last = __byte_perm(even, odd, 0x7362);
    out[0] = unpack_pair<KV_INT8, T>(first, 0);
    out[1] = unpack_pair<KV_INT8, T>(first, 2);
    out[2] = unpack_pair<KV_INT8, T>(last, 0);
    out[3] = unpack_pair<KV_INT8, T>(last, 2);
}

/* Twice the 4-bit float: its exponent and mantissa where those of T are, whose bias is larger. */
template <class T> __device__ __forceinline__ uint32_t unpack_e2m1(uint32_t pair) {
    constexpr bool is_half = sizeof(T) == 2 && ones_bit<T> == 0x64006400;
    constexpr uint32_t unit = is_half ? 0x78007800 : 0x7f007f00; /* 2^15, 2^127 */
    const uint32_t bits = (pair & 0x00080008) << 12 | (pair & 0x00070007) << (is_half ? 9 : 6);
    return multiply2<T>(bits, unit);
}

/* Pair i of group j as an integer in each half. */
template <int F>
__device__ __forceinline__ uint32_t integers_of(const chunk_words<F> &words, int j, int i) {
    using form = form_of<F>;
    const int p = j % 2 * 4 + i;
    uint32_t codes = form::low_bits == 4 ? words.low[j] >> 4 * i & 0x000f000f
                                         : words.low[j / 2] >> 2 * p & 0x00030003;
    if constexpr (form::high_bits == 1)
        codes |= (words.high[0] >> (4 * j + i) & 0x00010001) << form::low_bits;
    else if constexpr (form::high_bits == 2)
        codes |= (words.high[j / 2] >> 2 * p & 0x00030003) << form::low_bits;
    return codes;
}

/* The lane's codes of group j, e = 0 to 7, over code_unit. */
template <int F, class T>
__device__ __forceinline__ void unpack_group(uint32_t (&out)[4], const chunk_words<F> &words,
                                             int j) {
    using form = form_of<F>;
    if constexpr (form::codes == PACKED_IQ4_NL) {
        unpack_iq4_nl<T>(out, words.low[j]);
        return;
    }
    const uint32_t zero = zero_pair<F, T>(words, j);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if constexpr (form::codes == PACKED_E4M3)
            out[i] = unpack_pair<KV_E4M3, T>(words.low[2 * j + i / 2], i % 2 * 2);
        else if constexpr (form::codes == PACKED_E2M1)
            out[i] = unpack_e2m1<T>(integers_of<F>(words, j, i));
        else if constexpr (form::low_bits < 8)
            out[i] = subtract2<T>(integers_of<F>(words, j, i) | ones_bit<T>, zero);
        else if constexpr (form::has_zero)
            out[i] = subtract2<T>(
                unpack_pair<KV_INT8, T>(words.low[2 * j + i / 2] ^ 0x80808080, i % 2 * 2), zero);
        else
            out[i] = unpack_pair<KV_INT8, T>(words.low[2 * j + i / 2], i % 2 * 2);
}

/* Groups 2 and 3 become 0 and 1. Of a form whose scales are for 16 columns. */
template <int F> __device__ __forceinline__ void take_second_half(chunk_words<F> &words) {
    using form = form_of<F>;
    static_assert(form::group == 16 && form::scale_bytes == 8, "a word of scales for two groups");
#pragma unroll
    for (int i = 0; i < form::low_bits / 2; i++)
        words.low[i] = words.low[form::low_bits / 2 + i];
    if constexpr (form::high_bits == 2)
        words.high[0] = words.high[1];
    else
        words.high[0] >>= 8;
    words.scales[0] = words.scales[1];
    words.mins[0] = words.mins[1];
}

/* The first column of a chunk of the codes e = 4 half .. 4 half + 3 of group j. */
template <int F> __device__ __forceinline__ int column_at(int j, int t, int half) {
    return form_of<F>::group == 16 ? 32 * j + 16 * half + 4 * t : 32 * j + 8 * t + 4 * half;
}

#endif
