#include "server/telemetry/trace_context.h"

#include "config/base/random_id.h"

#include <string.h>

/* VERSION-TRACE-PARENT-FLAGS */
#define VERSION_AT 0
#define TRACE_AT 3
#define PARENT_AT (TRACE_AT + TRACE_ID_DIGITS + 1)
#define FLAGS_AT (PARENT_AT + SPAN_ID_DIGITS + 1)
#define LENGTH (FLAGS_AT + 2)
#define FLAG_SAMPLED 1

static const char digits[] = "0123456789abcdef";

static bool is_part(const char *at, size_t length, char end) {
    return strspn(at, digits) == length && at[length] == end;
}

static bool is_zero(const char *at, size_t length) {
    return strspn(at, "0") >= length;
}

/* What follows belongs to versions to come, never to 00. */
static bool has_good_end(const char *text) {
    const char *end = text + LENGTH;
    return *end == '\0' || (*end == '-' && memcmp(text, "00", 2) != 0);
}

static bool is_good(const char *text) {
    return is_part(text + VERSION_AT, 2, '-') && memcmp(text, "ff", 2) != 0 &&
           is_part(text + TRACE_AT, TRACE_ID_DIGITS, '-') &&
           !is_zero(text + TRACE_AT, TRACE_ID_DIGITS) &&
           is_part(text + PARENT_AT, SPAN_ID_DIGITS, '-') &&
           !is_zero(text + PARENT_AT, SPAN_ID_DIGITS) && strspn(text + FLAGS_AT, digits) == 2 &&
           has_good_end(text);
}

void trace_context_read(const char *traceparent, struct trace_context *out) {
    *out = (struct trace_context){0};
    if (traceparent == NULL || !is_good(traceparent))
        return;
    memcpy(out->trace_id, traceparent + TRACE_AT, TRACE_ID_DIGITS);
    memcpy(out->parent_id, traceparent + PARENT_AT, SPAN_ID_DIGITS);
    out->is_sampled = (strchr(digits, traceparent[FLAGS_AT + 1]) - digits) & FLAG_SAMPLED;
}

int trace_context_begin(struct trace_context *out) {
    *out = (struct trace_context){.is_sampled = true};
    return random_id("", TRACE_ID_DIGITS, out->trace_id, sizeof(out->trace_id));
}
