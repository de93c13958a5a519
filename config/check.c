#include "config/check.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void check_failed(const char *file, int line, const char *condition) {
    fprintf(stderr, "quire: internal error at %s:%d: %s\n", file, line, condition);
    abort();
}
