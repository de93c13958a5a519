/* Unguessable ids of requests, choices and tool calls. */
#ifndef QUIRE_CONFIG_BASE_RANDOM_ID_H
#define QUIRE_CONFIG_BASE_RANDOM_ID_H

#include <stddef.h>

#define RANDOM_ID_MAX_DIGITS 32

/* Writes the prefix, num_digits random hexadecimal digits (even, at most RANDOM_ID_MAX_DIGITS) and
 * a NUL. capacity has room for all of it. Returns -1 when the kernel provides no random bytes. Any
 * thread. */
int random_id(const char *prefix, int num_digits, char *out, size_t capacity);

#endif
