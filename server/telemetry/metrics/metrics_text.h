/* Prometheus' text exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats):
 * per metric a HELP and a TYPE line, then its samples, each with vLLM's labels model_name and
 * engine.
 *
 * Names, help texts, labels and their values are written unchanged, except for what goes through
 * metrics_text_label_value. */
#ifndef QUIRE_SERVER_TELEMETRY_METRICS_METRICS_TEXT_H
#define QUIRE_SERVER_TELEMETRY_METRICS_METRICS_TEXT_H

#include "config/base/byte_buffer.h"
#include "engine/stats/engine_stats.h"

#define METRICS_TEXT_MAX_FAMILIES 160

/* The text of each metric, in the order in which they began. Samples of a metric stand together,
 * so one that begins again, for another model, continues where it ended. Zeroed: none. */
struct metrics_text_families {
    struct {
        const char *name; /* static */
        struct byte_buffer text;
    } items[METRICS_TEXT_MAX_FAMILIES];
    int count;
    struct byte_buffer *out; /* of the one that began last */
};

/* Appends all of it, and frees it. */
void metrics_text_families_finish(struct metrics_text_families *families, struct byte_buffer *out);

struct metrics_text {
    const char *prefix;        /* of every name */
    struct byte_buffer labels; /* of every sample: model_name="...",engine="0"; owned */
    struct metrics_text_families *families;
};

/* prefix and families are used until finish. model_name NULL: samples are of no model. */
struct metrics_text metrics_text_begin(const char *prefix, const char *model_name,
                                       struct metrics_text_families *families);
void metrics_text_finish(struct metrics_text *text);

/* Writes a label's value with the format's escapes. */
void metrics_text_label_value(struct byte_buffer *out, const char *value);

#define METRICS_TEXT_NUMBER_CHARS 40

/* Writes the shortest decimal that reads back the same; whole numbers as 1.0, as in vLLM's le
 * labels. */
void metrics_text_number(double value, char out[METRICS_TEXT_NUMBER_CHARS]);

/* Begins a metric, or continues it. name: static. */
void metrics_text_header(const struct metrics_text *text, const char *name, const char *type,
                         const char *help);
/* Writes a sample's line as far as the common labels: more labels may follow, then "} VALUE\n". */
void metrics_text_begin_sample(const struct metrics_text *text, const char *name,
                               const char *suffix);
/* Writes one line; label NULL: none beyond the common ones. */
void metrics_text_sample(const struct metrics_text *text, const char *name, const char *suffix,
                         const char *label, const char *label_value, double value);
/* Writes a metric that has one sample. */
void metrics_text_single(const struct metrics_text *text, const char *name, const char *type,
                         const char *help, double value);
/* Writes a metric that has two samples, by the values of a label. */
void metrics_text_pair(const struct metrics_text *text, const char *name, const char *type,
                       const char *help, const char *label, const char *const words[2],
                       const uint64_t values[2]);
/* Writes the samples of a histogram. */
void metrics_text_histogram(const struct metrics_text *text, const char *name,
                            const struct histogram *histogram);

#endif
