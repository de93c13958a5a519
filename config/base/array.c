#include "config/base/array.h"

#include "config/base/checked.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES 256

bool array_grow(void *items, size_t *capacity, size_t count, size_t item_bytes) {
    size_t grown = *capacity, bytes;
    if (grown < FIRST_BYTES / item_bytes)
        grown = FIRST_BYTES / item_bytes;
    while (grown < count) {
        if (grown == 0 || !checked_mul(grown, 2, &grown))
            grown = count;
    }
    void *data;
    memcpy(&data, items, sizeof(data)); /* a pointer of another type */
    if (!checked_mul(grown, item_bytes, &bytes) || (data = realloc(data, bytes)) == NULL)
        return false;
    memcpy(items, &data, sizeof(data));
    *capacity = grown;
    return true;
}
