/* What `quire top` shows: the state of a server, from two of its answers to /metrics. */
#ifndef QUIRE_SERVER_TOP_VIEW_H
#define QUIRE_SERVER_TOP_VIEW_H

#include "config/base/byte_buffer.h"

/* Appends the view as lines. earlier: the answer `seconds` before this one; NULL: rates and latencies
 * are those since the start of the server. Both are NUL-terminated. */
void top_view_write(const char *metrics, const char *earlier, double seconds,
                    struct byte_buffer *out);

#endif
