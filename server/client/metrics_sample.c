#include "server/client/metrics_sample.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A line of the text: NAME{LABELS} VALUE, or NAME VALUE. */
struct sample {
    const char *labels, *labels_end; /* equal: there are none */
    double value;
};

/* Returns where the name without its prefix ends, or NULL: the line has another one. */
static const char *match_name(const char *line, const char *name) {
    size_t length = strcspn(line, "{ \n");
    const char *colon = memchr(line, ':', length);
    const char *begin = colon != NULL ? colon + 1 : line;
    size_t wanted = strlen(name);
    return (size_t)(line + length - begin) == wanted && memcmp(begin, name, wanted) == 0
               ? line + length
               : NULL;
}

/* Values of labels have no line feeds, but may have brackets and quotes behind a backslash. */
static const char *end_of_labels(const char *at) {
    bool is_quoted = false;
    for (; *at != '\0' && *at != '\n'; at++) {
        if (is_quoted && *at == '\\' && at[1] != '\0')
            at++;
        else if (*at == '"')
            is_quoted = !is_quoted;
        else if (*at == '}' && !is_quoted)
            break;
    }
    return at;
}

static void read_sample(const char *at, struct sample *out) {
    *out = (struct sample){.labels = at, .labels_end = at};
    if (*at == '{') {
        out->labels = at + 1;
        out->labels_end = end_of_labels(at + 1);
        at = *out->labels_end == '}' ? out->labels_end + 1 : out->labels_end;
    }
    out->value = strtod(at, NULL);
}

/* Finds the metric's next sample at or behind *at, and moves *at to the line behind it. */
static bool find_sample(const char **at, const char *name, struct sample *out) {
    const char *line = *at;
    while (*line != '\0') {
        const char *rest = *line != '#' ? match_name(line, name) : NULL;
        const char *end = strchr(line, '\n');
        *at = end != NULL ? end + 1 : line + strlen(line);
        if (rest != NULL) {
            read_sample(rest, out);
            return true;
        }
        line = *at;
    }
    return false;
}

/* Returns the value behind `NAME="`, or NULL. */
static const char *find_label(const struct sample *sample, const char *label) {
    size_t length = strlen(label);
    for (const char *at = sample->labels; at + length + 2 < sample->labels_end; at++) {
        bool is_begin = at == sample->labels || at[-1] == ',';
        if (is_begin && memcmp(at, label, length) == 0 && memcmp(at + length, "=\"", 2) == 0)
            return at + length + 2;
    }
    return NULL;
}

double metrics_sample_sum(const char *text, const char *name, const char *label) {
    struct sample sample;
    double sum = 0;
    while (find_sample(&text, name, &sample)) {
        size_t length = (size_t)(sample.labels_end - sample.labels);
        if (label == NULL || memmem(sample.labels, length, label, strlen(label)) != NULL)
            sum += sample.value;
    }
    return sum;
}

void metrics_sample_histogram(const char *text, const char *name,
                              struct metrics_sample_histogram *out) {
    char bucket[128] = "";
    struct sample sample;
    *out = (struct metrics_sample_histogram){0};
    strncat(bucket, name, sizeof(bucket) - sizeof("_bucket"));
    strcat(bucket, "_bucket");
    while (find_sample(&text, bucket, &sample)) {
        const char *le = find_label(&sample, "le");
        double bound = le != NULL ? strtod(le, NULL) : NAN;
        int i = 0;
        while (i < out->num_bounds && out->bounds[i] != bound)
            i++;
        if (isnan(bound) || i == METRICS_SAMPLE_BUCKETS)
            continue;
        out->num_bounds += i == out->num_bounds;
        out->bounds[i] = bound;
        out->cumulative[i] += sample.value;
    }
}

void metrics_sample_subtract(struct metrics_sample_histogram *from,
                             const struct metrics_sample_histogram *earlier) {
    int last = from->num_bounds - 1;
    if (last < 0 || earlier->num_bounds != from->num_bounds ||
        earlier->cumulative[last] > from->cumulative[last])
        return;
    for (int i = 0; i <= last; i++)
        from->cumulative[i] -= earlier->cumulative[i];
}

double metrics_sample_quantile(const struct metrics_sample_histogram *histogram, double quantile) {
    int last = histogram->num_bounds - 1, i = 0;
    if (last < 0 || !(histogram->cumulative[last] > 0))
        return NAN;
    double rank = quantile * histogram->cumulative[last];
    while (i < last && histogram->cumulative[i] < rank)
        i++;
    double low = i > 0 ? histogram->bounds[i - 1] : 0,
           below = i > 0 ? histogram->cumulative[i - 1] : 0;
    double count = histogram->cumulative[i] - below;
    if (isinf(histogram->bounds[i]))
        return low;
    return count > 0 ? low + (histogram->bounds[i] - low) * (rank - below) / count : low;
}

bool metrics_sample_next(const char **at, const char *name, const char *label, char *out,
                         int capacity) {
    struct sample sample;
    while (find_sample(at, name, &sample)) {
        const char *value = find_label(&sample, label);
        if (value == NULL)
            continue;
        size_t length = strcspn(value, "\"\n");
        length = length < (size_t)capacity ? length : (size_t)capacity - 1;
        memcpy(out, value, length);
        out[length] = '\0';
        return true;
    }
    return false;
}
