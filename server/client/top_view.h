/* What `quire top` shows: the state of a server, from two of its answers to /metrics. */
#ifndef QUIRE_SERVER_CLIENT_TOP_VIEW_H
#define QUIRE_SERVER_CLIENT_TOP_VIEW_H

#include "config/base/byte_buffer.h"

#include <stdbool.h>

/* --- Samples --- */

/* Reads Prometheus' text format, the format of /metrics: sums of samples, and histograms. The
 * prefix of a metric's name, up to its colon, is not compared: servers choose it. */

#define METRICS_SAMPLE_BUCKETS 48

/* Counts of a histogram, over all its labels but le. */
struct metrics_sample_histogram {
    int num_bounds;
    double bounds[METRICS_SAMPLE_BUCKETS];     /* rising, the last may be infinite */
    double cumulative[METRICS_SAMPLE_BUCKETS]; /* observations <= bounds[i] */
};

/* text is NUL-terminated in all of these. */

/* Returns the sum of the metric's samples, of those with this label (`key="a"`) if it is not
 * NULL. */
double metrics_sample_sum(const char *text, const char *name, const char *label);
void metrics_sample_histogram(const char *text, const char *name,
                              struct metrics_sample_histogram *out);
/* Subtracts the counts of an earlier time; nothing if the server was restarted in between. */
void metrics_sample_subtract(struct metrics_sample_histogram *from,
                             const struct metrics_sample_histogram *earlier);
/* Returns the quantile (0 to 1), with values spread evenly in a bucket as in PromQL's
 * histogram_quantile; NaN: nothing was observed. */
double metrics_sample_quantile(const struct metrics_sample_histogram *histogram, double quantile);

/* Copies the value of a label of the metric's next sample, and advances *at past it; initially *at
 * is the text. False: no more samples. */
bool metrics_sample_next(const char **at, const char *name, const char *label, char *out,
                         int capacity);

/* --- The view --- */

/* Appends the view as lines. earlier: the answer `seconds` before this one; NULL: rates and
 * latencies are those since the start of the server. Both are NUL-terminated. */
void top_view_write(const char *metrics, const char *earlier, double seconds,
                    struct byte_buffer *out);

#endif
