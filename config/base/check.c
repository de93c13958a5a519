#include "config/base/check.h"

#include "config/base/log.h"

#include <stdlib.h>

/* Through the log, which waits for no reader: an end that hangs would be worse than one unsaid. */
_Noreturn void check_failed(const char *file, int line, const char *condition) {
    log_error("internal error at %s:%d: %s", file, line, condition);
    abort();
}
