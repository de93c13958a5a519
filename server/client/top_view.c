#include "server/client/top_view.h"

#include "server/client/metrics_sample.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NAME_CHARS 65
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

/* Returns how much the counter rose a second. One that fell began anew. */
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

static void write_head(const struct view *v) {
    char name[256] = "?";
    const char *at = v->now;
    metrics_sample_next(&at, "num_requests_running", "model_name", name, sizeof(name));
    write_name(v->out, name);
    byte_buffer_printf(v->out, ", up %.0f s, %.0f MiB resident\n\n", uptime(v),
                       value_of(v, "memory_resident_bytes") / 1048576);
}

static void write_state(const struct view *v) {
    double total = value_of(v, "kv_blocks_total"), used = value_of(v, "kv_blocks_used");
    byte_buffer_printf(v->out, "sequences   %.0f running, %.0f waiting, %.0f swapped\n",
                       value_of(v, "num_requests_running"), value_of(v, "num_requests_waiting"),
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
        size_t before = v->out->length;
        write_name(v->out, name);
        size_t written = v->out->length - before;
        byte_buffer_printf(v->out, "%*s", written < 24 ? (int)(24 - written) : 1, "");
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
    write_keys(&v);
}
