/* Whose trace a request belongs to: the field `traceparent` of W3C Trace Context
 * (w3.org/TR/trace-context, section 3.2). */
#ifndef QUIRE_SERVER_TRACE_CONTEXT_H
#define QUIRE_SERVER_TRACE_CONTEXT_H

#include <stdbool.h>

#define TRACE_ID_DIGITS 32
#define SPAN_ID_DIGITS 16

struct trace_context {
    char trace_id[TRACE_ID_DIGITS + 1]; /* lower-case hexadecimal; "": no trace */
    char parent_id[SPAN_ID_DIGITS + 1]; /* the caller's span; "": this one is the first */
    bool is_sampled;                    /* the caller may have recorded its span */
};

/* Reads the field's value, NULL: there is none. One that is not as it must be counts as none, as the
 * standard says; of a version that is not known yet the parts of version 00 are taken. */
void trace_context_read(const char *traceparent, struct trace_context *out);

/* Makes up a trace that is to be recorded. Returns -1 when the kernel gives no random bytes. */
int trace_context_begin(struct trace_context *out);

#endif
