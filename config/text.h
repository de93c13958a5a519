/* A string somewhere in a larger piece of memory: not NUL-terminated, and valid as long as what it
 * points into. */
#ifndef QUIRE_CONFIG_TEXT_H
#define QUIRE_CONFIG_TEXT_H

#include <stddef.h>

struct text {
    const char *data;
    size_t length;
};

#endif
