#include "tensor_core.h"

#include <math.h>

namespace cudasim {

float e4m3_value(uint8_t code) {
    int exponent = code >> 3 & 15, mantissa = code & 7;
    float magnitude = (code & 0x7f) == 0x7f ? NAN
                      : exponent == 0       ? ldexpf((float)mantissa, -9)
                                            : ldexpf((float)(8 + mantissa), exponent - 10);
    return (code & 0x80) != 0 ? -magnitude : magnitude;
}

static const int FRACTION_BITS = 23, BIAS = 127, SPECIAL = 255; /* of a float and its exponent */

/* The upper half of a float holds its exponent, and any processor has a maximum of such halves. */
typedef int16_t eight_halves __attribute__((vector_size(16)));

static eight_halves magnitude_bits(four_floats x) {
    return (eight_halves)((four_ints)x & 0x7fffffff);
}

/* Of the largest magnitude, as it stands in a float. */
static four_ints largest_exponent(four_floats sum, const four_floats *products, int count) {
    eight_halves largest = magnitude_bits(sum);
    for (int k = 0; k < count; k++) {
        eight_halves bits = magnitude_bits(products[k]);
        largest = bits > largest ? bits : largest;
    }
    return (four_ints)largest >> FRACTION_BITS;
}

/* Bits beyond a float's are cut off. */
static four_floats truncate(four_ints x) {
    four_ints sign = x >> 31, magnitude = (x ^ sign) - sign;
    four_floats nearest = __builtin_convertvector(magnitude, four_floats);
    four_ints is_more = __builtin_convertvector(nearest, four_ints) > magnitude; /* or 0 */
    return (four_floats)(((four_ints)nearest + is_more) | (sign & INT32_MIN));
}

static four_ints count_units(four_floats x, four_floats units, four_ints is_finite) {
    return __builtin_convertvector((four_floats)((four_ints)(x * units) & is_finite), four_ints);
}

static four_floats add_floats(four_floats sum, const four_floats *products, int count) {
    for (int k = 0; k < count; k++)
        sum += products[k];
    return sum;
}

/* In integers: multiples of the least bit that is kept, 2^kept_bits less than the largest's. */
four_floats add_chunk(four_floats sum, const four_floats *products, int count, int kept_bits) {
    four_ints exponent = largest_exponent(sum, products, count), is_finite = exponent != SPECIAL;
    four_ints least = exponent * 0 + kept_bits + 1; /* all factors are normal */
    exponent = exponent < least ? least : exponent;
    four_floats units = (four_floats)((2 * BIAS + kept_bits - exponent) << FRACTION_BITS);
    four_ints total = count_units(sum, units, is_finite);
    for (int k = 0; k < count; k++)
        total += count_units(products[k], units, is_finite);
    four_floats result = truncate(total) * (four_floats)((exponent - kept_bits) << FRACTION_BITS);
    if (!(is_finite[0] & is_finite[1] & is_finite[2] & is_finite[3]))
        result = is_finite ? result : add_floats(sum, products, count);
    return result;
}

} // namespace cudasim
