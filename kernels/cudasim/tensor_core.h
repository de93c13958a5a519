/* Sums of products as a tensor core forms them. One step adds a chunk of products, which are exact,
 * to a float: all are aligned to the largest exponent among them and the float, bits further below
 * than the core keeps are cut off, and so is what the sum has more than a float holds. Nothing is
 * rounded, so that sums are too small in magnitude, the more so the longer they are.
 *
 * Fasi, Higham, Mikaitis, Pranesh: Numerical behavior of NVIDIA tensor cores, PeerJ Computer
 * Science 7:e330, 2021; Khattak, Mikaitis: Accurate models of NVIDIA tensor cores,
 * arXiv:2512.07004, 2025.
 * A chunk is of 8 products of 16-bit floats on an A100, of 16 on an H100. */
#ifndef CUDASIM_TENSOR_CORE_H
#define CUDASIM_TENSOR_CORE_H

#include <stdint.h>

namespace cudasim {

/* Four sums at a time. */
typedef float four_floats __attribute__((vector_size(16)));
typedef int32_t four_ints __attribute__((vector_size(16)));

const int MAX_CHUNK = 32;
/* Bits after the binary point of the largest: one more than a float has. GPUs differ. */
const int KEPT_BITS = 24;
/* Of products of E4M3, on an RTX 40 and an H100; a B200 keeps more. */
const int KEPT_BITS_OF_E4M3 = 13;

/* S EEEE MMM, bias 7; NaN where all but the sign is ones. */
float e4m3_value(uint8_t code);

/* Returns sum + products[0] + ... + products[count - 1]. Units below 2^-126 are not kept. With an
 * infinity or a NaN, the sum of floats. */
four_floats add_chunk(four_floats sum, const four_floats *products, int count, int kept_bits);

} // namespace cudasim

#endif
