/* A model of AMX's tile instructions, for machines without them: what Intel's documentation says
 * that they do (Software Developer's Manual, volume 2: LDTILECFG, TILELOADD, TILESTORED, TILEZERO,
 * TDPBSUD, TDPBF16PS), one element at a time. What the processor would refuse with an exception
 * fails a CHECK. Each thread has tiles of its own. */
#ifndef QUIRE_TESTS_KERNELS_AMX_MODEL_H
#define QUIRE_TESTS_KERNELS_AMX_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* 64 bytes: palette, start row, 14 zeros, bytes of a row (uint16_t [16]), rows (uint8_t [16]) of
 * each tile. Tiles are zero after it. */
void amx_model_configure(const void *config);
void amx_model_release(void);

void amx_model_zero(int tile);
/* Bytes past a tile's own rows and columns become zero. */
void amx_model_load(int tile, const void *base, ptrdiff_t stride);
void amx_model_store(int tile, void *base, ptrdiff_t stride);

/* c[m][n] += sum over k of a[m][k] * b[k][n], of quadruples of bytes: signed ones of a, unsigned
 * ones of b; the sum wraps. */
void amx_model_dot_bytes(int c, int a, int b);
/* Likewise of pairs of BF16 into float. The products of the even elements and those of the odd ones
 * are summed apart, in order of k from zero, by fused multiply-adds; then the two sums are added,
 * and that to c. Each operation rounds to nearest even, takes denormals for zeros, and gives zero
 * for a denormal result. */
void amx_model_dot_bf16(int c, int a, int b);

#endif
