#include "tests/unit/failing_allocations.h"

#include <stdbool.h>

long allocations_left = -1;

static bool allocation_fails(void) {
    if (allocations_left < 0)
        return false;
    if (allocations_left == 0)
        return true;
    allocations_left--;
    return false;
}

void *__wrap_malloc(size_t bytes) {
    return allocation_fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return allocation_fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *data, size_t bytes) {
    return allocation_fails() ? NULL : __real_realloc(data, bytes);
}
