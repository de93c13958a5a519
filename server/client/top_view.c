#include "server/client/top_view.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- Samples --- */

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

/* Values of labels have no line feeds, but may have brackets, and quotes after a backslash. */
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

/* Finds the metric's next sample at or after *at, and advances *at to the line after it. */
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

/* Returns the value after `NAME="`, or NULL. */
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

/* Returns false if the sample has no such label. */
static bool copy_label(const struct sample *sample, const char *label, char *out, int capacity) {
    const char *value = find_label(sample, label);
    if (value == NULL)
        return false;
    size_t length = strcspn(value, "\"\n");
    length = length < (size_t)capacity ? length : (size_t)capacity - 1;
    memcpy(out, value, length);
    out[length] = '\0';
    return true;
}

bool metrics_sample_next(const char **at, const char *name, const char *label, char *out,
                         int capacity) {
    struct sample sample;
    while (find_sample(at, name, &sample))
        if (copy_label(&sample, label, out, capacity))
            return true;
    return false;
}

/* --- The view --- */

#define NAME_CHARS 65
#define MODEL_NAME_CHARS 256
#define MAX_KEYS 50 /* that are shown */

/* Two answers, and the time between them. */
struct view {
    const char *now, *earlier;
    double seconds;
    struct byte_buffer *out;
};

static double value_of(const struct view *v, const char *name) {
    return metrics_sample_sum(v->now, name, NULL);
}

/* Returns for how long the server has run; 0: it does not say. */
static double uptime(const struct view *v) {
    struct timespec now;
    double start = value_of(v, "process_start_time_seconds");
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - start;
    return start > 0 && seconds > 0 ? seconds : 0;
}

/* Returns the counter's increase per second. One that decreased was restarted. */
static double rate_of(const struct view *v, const char *name, const char *label) {
    double now = metrics_sample_sum(v->now, name, label);
    double earlier = v->earlier != NULL ? metrics_sample_sum(v->earlier, name, label) : 0;
    if (v->seconds <= 0)
        return 0;
    return (now >= earlier ? now - earlier : now) / v->seconds;
}

/* Names come from the server: what a terminal would obey is not shown. */
static void write_name(struct byte_buffer *out, const char *name) {
    for (; *name != '\0'; name++) {
        char shown = isprint((unsigned char)*name) ? *name : '?';
        byte_buffer_append(out, &shown, 1);
    }
}

/* Writes the name as a cell of a table. */
static void write_cell(struct byte_buffer *out, const char *name, size_t width) {
    size_t before = out->length;
    write_name(out, name);
    size_t written = out->length - before;
    byte_buffer_printf(out, "%*s", written < width ? (int)(width - written) : 1, "");
}

/* Returns how many models there are; 0: the server has one, which stays. */
static int count_models(const struct view *v) {
    char name[MODEL_NAME_CHARS];
    const char *at = v->now;
    int count = 0;
    while (metrics_sample_next(&at, "models_loads_total", "model_name", name, sizeof(name)))
        count++;
    return count;
}

static void write_head(const struct view *v) {
    char name[MODEL_NAME_CHARS] = "?";
    const char *at = v->now;
    int num_models = count_models(v);
    metrics_sample_next(&at, "num_requests_running", "model_name", name, sizeof(name));
    if (num_models > 0)
        byte_buffer_printf(v->out, "%d model%s", num_models, num_models > 1 ? "s" : "");
    else
        write_name(v->out, name);
    byte_buffer_printf(v->out, ", up %.0f s, %.0f MiB resident\n\n", uptime(v),
                       value_of(v, "memory_resident_bytes") / 1048576);
}

static void write_state(const struct view *v) {
    double total = value_of(v, "kv_blocks_total"), used = value_of(v, "kv_blocks_used");
    byte_buffer_printf(v->out, "sequences   %.0f running, %.0f waiting, %.0f swapped\n",
                       value_of(v, "num_requests_running"),
                       value_of(v, "num_requests_waiting") + value_of(v, "model_requests_waiting"),
                       value_of(v, "num_requests_swapped"));
    byte_buffer_printf(v->out, "KV blocks   %.0f used of %.0f (%.1f %%), %.0f cached\n", used,
                       total, total > 0 ? 100 * used / total : 0, value_of(v, "kv_blocks_cached"));
    byte_buffer_printf(v->out, "connections %.0f\n\n", value_of(v, "http_connections"));
}

static void write_rates(const struct view *v) {
    double queries = rate_of(v, "prefix_cache_queries_total", NULL);
    double hits = rate_of(v, "prefix_cache_hits_total", NULL);
    byte_buffer_printf(v->out, "tokens/s    %.1f out, %.1f in, %.1f %% of prompts cached\n",
                       rate_of(v, "generation_tokens_total", NULL),
                       rate_of(v, "prompt_tokens_total", NULL),
                       queries > 0 ? 100 * hits / queries : 0);
    byte_buffer_printf(v->out, "requests/s  %.1f answered, %.1f of them errors, %.1f preempted\n\n",
                       rate_of(v, "http_requests_total", NULL),
                       rate_of(v, "http_requests_total", "class=\"4xx\"") +
                           rate_of(v, "http_requests_total", "class=\"5xx\""),
                       rate_of(v, "num_preemptions_total", NULL));
}

static void write_quantile(const struct view *v, const struct metrics_sample_histogram *histogram,
                           double quantile) {
    double seconds = metrics_sample_quantile(histogram, quantile);
    if (isnan(seconds))
        byte_buffer_printf(v->out, "%9s", "-");
    else
        byte_buffer_printf(v->out, "%9.*f", seconds < 1 ? 3 : 1, seconds);
}

static void write_latency(const struct view *v, const char *title, const char *name) {
    struct metrics_sample_histogram histogram, earlier;
    metrics_sample_histogram(v->now, name, &histogram);
    if (v->earlier != NULL) {
        metrics_sample_histogram(v->earlier, name, &earlier);
        metrics_sample_subtract(&histogram, &earlier);
    }
    byte_buffer_printf(v->out, "%-16s", title);
    write_quantile(v, &histogram, 0.5);
    write_quantile(v, &histogram, 0.9);
    write_quantile(v, &histogram, 0.99);
    byte_buffer_append_text(v->out, "\n");
}

static void write_latencies(const struct view *v) {
    byte_buffer_printf(v->out, "%-16s%9s%9s%9s\n", "seconds", "p50", "p90", "p99");
    write_latency(v, "first token", "time_to_first_token_seconds");
    write_latency(v, "between tokens", "inter_token_latency_seconds");
    write_latency(v, "queue", "request_queue_time_seconds");
    write_latency(v, "whole request", "e2e_request_latency_seconds");
}

/* Writes the state that the sample 1 of the model is for. */
static void write_model_state(const struct view *v, const char *name) {
    struct sample sample;
    const char *at = v->now;
    char state[16] = "?", model[MODEL_NAME_CHARS] = "";
    while (find_sample(&at, "model_state", &sample))
        if (sample.value == 1 && copy_label(&sample, "model_name", model, sizeof(model)) &&
            strcmp(model, name) == 0)
            copy_label(&sample, "state", state, sizeof(state));
    write_cell(v->out, state, 10);
}

static void write_model(const struct view *v, const char *name) {
    char label[MODEL_NAME_CHARS + 16];
    snprintf(label, sizeof(label), "model_name=\"%s\"", name);
    double total = metrics_sample_sum(v->now, "kv_blocks_total", label);
    double used = metrics_sample_sum(v->now, "kv_blocks_used", label);
    write_cell(v->out, name, 32);
    write_model_state(v, name);
    byte_buffer_printf(v->out, "%9.0f%9.0f%12.1f%12.1f%9.1f\n",
                       metrics_sample_sum(v->now, "num_requests_running", label),
                       metrics_sample_sum(v->now, "num_requests_waiting", label) +
                           metrics_sample_sum(v->now, "model_requests_waiting", label),
                       rate_of(v, "generation_tokens_total", label),
                       rate_of(v, "prompt_tokens_total", label),
                       total > 0 ? 100 * used / total : 0);
}

static void write_models(const struct view *v) {
    char name[MODEL_NAME_CHARS];
    const char *at = v->now;
    if (count_models(v) == 0)
        return;
    byte_buffer_printf(v->out, "\n%-32s%-10s%9s%9s%12s%12s%9s\n", "model", "state", "running",
                       "waiting", "out tok/s", "in tok/s", "KV %");
    while (metrics_sample_next(&at, "models_loads_total", "model_name", name, sizeof(name)))
        write_model(v, name);
}

static void write_keys(const struct view *v) {
    char name[NAME_CHARS], label[NAME_CHARS + 8];
    const char *at = v->now;
    for (int i = 0; i < MAX_KEYS &&
                    metrics_sample_next(&at, "api_key_requests_running", "key", name, sizeof(name));
         i++) {
        if (i == 0)
            byte_buffer_printf(v->out, "\n%-24s%9s%12s%12s%12s\n", "key", "running", "out tok/s",
                               "in tok/s", "requests/s");
        snprintf(label, sizeof(label), "key=\"%s\"", name);
        write_cell(v->out, name, 24);
        byte_buffer_printf(v->out, "%9.0f%12.1f%12.1f%12.1f\n",
                           metrics_sample_sum(v->now, "api_key_requests_running", label),
                           rate_of(v, "api_key_generation_tokens_total", label),
                           rate_of(v, "api_key_prompt_tokens_total", label),
                           rate_of(v, "api_key_requests_total", label));
    }
}

void top_view_write(const char *metrics, const char *earlier, double seconds,
                    struct byte_buffer *out) {
    struct view v = {.now = metrics, .earlier = earlier, .seconds = seconds, .out = out};
    if (earlier == NULL)
        v.seconds = uptime(&v);
    write_head(&v);
    write_state(&v);
    write_rates(&v);
    write_latencies(&v);
    write_models(&v);
    write_keys(&v);
}
