/* Says which build this is, for the fingerprint that promises equal bytes. */
#ifndef QUIRE_CONFIG_BUILD_HASH_H
#define QUIRE_CONFIG_BUILD_HASH_H

/* Hexadecimal: of the sources of kernels/, models/ and engine/, the compiler and its options; made
 * by scripts/tree/build_hash.py. Linked into the program and into each module of kernels/cuda,
 * which may be of another build. */
const char *build_hash(void);

#endif
