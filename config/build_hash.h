/* Identifies this build, for the fingerprint that promises equal output bytes. */
#ifndef QUIRE_CONFIG_BUILD_HASH_H
#define QUIRE_CONFIG_BUILD_HASH_H

/* Returns a hash in hexadecimal of the sources of kernels/, models/ and engine/, the compiler and
 * its options, as made by scripts/tree/build_hash.py. It is linked into the program and into each
 * module of kernels/cuda, which may come from another build. */
const char *build_hash(void);

#endif
