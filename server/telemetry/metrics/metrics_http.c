#include "server/telemetry/metrics/metrics_http.h"

#include "server/telemetry/metrics/metrics_text.h"

#include <string.h>

void metrics_http_count_error(struct http_stats *http, int status, const char *code) {
    int i = 0;
    code = code != NULL ? code : "";
    while (i < http->num_causes &&
           (http->errors[i].status != status || strcmp(http->errors[i].code, code) != 0))
        i++;
    if (i == METRICS_HTTP_MAX_CAUSES)
        http->errors[--i].code = "other";
    else if (i == http->num_causes)
        http->errors[http->num_causes++] = (struct http_error_count){status, code, 0};
    http->errors[i].count++;
}

static void write_error(const struct metrics_text *w, const struct http_error_count *error) {
    metrics_text_begin_sample(w, "http_errors_total", "");
    byte_buffer_printf(w->out, ",status=\"%d\",code=\"%s\"} %llu\n", error->status, error->code,
                       (unsigned long long)error->count);
}

void metrics_http_write(const struct metrics_text *w, const struct http_stats *http) {
    static const char *const classes[] = {NULL, "1xx", "2xx", "3xx", "4xx", "5xx"};
    metrics_text_header(w, "http_requests_total", "counter",
                        "Requests answered, by class of status.");
    for (int i = 1; i < 6; i++)
        metrics_text_sample(w, "http_requests_total", "", "class", classes[i],
                            (double)http->requests_by_class[i]);
    metrics_text_header(w, "http_errors_total", "counter",
                        "Requests answered with an error, by status and by the error's code.");
    for (int i = 0; i < http->num_causes; i++)
        write_error(w, &http->errors[i]);
    metrics_text_single(w, "http_requests_rejected_total", "counter",
                        "Requests refused at admission (429, 503).", (double)http->rejected);
    metrics_text_single(w, "http_connections", "gauge", "Open connections.",
                        (double)http->connections);
    metrics_text_single(w, "http_held_bytes", "gauge",
                        "Memory of bodies that arrive and of answers that wait.",
                        (double)http->held_bytes);
    metrics_text_single(w, "log_lines_lost_total", "counter",
                        "Lines of the log that could not be written at once.",
                        (double)http->log_lines_lost);
    metrics_text_single(w, "access_log_lines_lost_total", "counter",
                        "Lines of the access log that could not be written.",
                        (double)http->access_log_lines_lost);
    metrics_text_single(w, "trace_spans_lost_total", "counter",
                        "Spans that the collector of traces did not take.",
                        (double)http->trace_spans_lost);
    metrics_text_single(
        w, "kv_event_batches_total", "counter",
        "Batches of changes of the prefix cache that were numbered to be published.",
        (double)http->kv_events.batches);
    metrics_text_single(w, "kv_event_batches_lost_total", "counter",
                        "Batches of them that nobody got, as the publisher's queue was full.",
                        (double)http->kv_events.lost_batches);
    metrics_text_single(w, "grammar_cache_hits_total", "counter",
                        "Forms of outputs whose grammar was there, compiled.",
                        (double)http->grammars.hits);
    metrics_text_single(w, "grammar_cache_misses_total", "counter",
                        "Forms of outputs whose grammar was compiled, or was none.",
                        (double)http->grammars.misses);
    metrics_text_single(w, "grammar_cache_bytes", "gauge",
                        "Memory of the grammars that are kept, with the masks that are known.",
                        (double)http->grammars.bytes);
    metrics_text_single(w, "response_store_entries", "gauge", "Responses that are kept.",
                        (double)http->responses.num_entries);
    metrics_text_single(w, "response_store_bytes", "gauge",
                        "Memory of the responses that are kept, and of the table that finds them.",
                        (double)http->responses.bytes);
    metrics_text_single(w, "response_store_evicted_total", "counter",
                        "Responses that went to make room for newer ones.",
                        (double)http->responses.num_evicted);
    metrics_text_single(w, "response_store_refused_total", "counter",
                        "Responses that were not kept, as they were too large or memory was short.",
                        (double)http->responses.num_refused);
    metrics_text_single(w, "memory_planned_bytes", "gauge",
                        "Memory that is used at most: the total printed at start.",
                        (double)http->planned_bytes);
}

/* class NULL: no such label. A key's name needs no escapes (key_entry.h). */
static void write_key_sample(const struct metrics_text *w, const char *name,
                             const struct api_key *key, const char *class, double value) {
    char number[METRICS_TEXT_NUMBER_CHARS];
    metrics_text_number(value, number);
    metrics_text_begin_sample(w, name, "");
    byte_buffer_printf(w->out, ",key=\"%s\"", key->entry.name);
    if (class != NULL)
        byte_buffer_printf(w->out, ",class=\"%s\"", class);
    byte_buffer_printf(w->out, "} %s\n", number);
}

static void write_key_requests(const struct metrics_text *w, const struct api_keys *keys) {
    static const char *const classes[] = {NULL, "1xx", "2xx", "3xx", "4xx", "5xx"};
    static const char name[] = "api_key_requests_total";
    const struct api_key *key = NULL;
    metrics_text_header(w, name, "counter", "Requests answered, by API key and class of status.");
    while ((key = api_keys_next(keys, key != NULL ? key->tenant : -1)) != NULL)
        for (int i = 2; i < 6; i++)
            write_key_sample(w, name, key, classes[i], (double)key->stats.requests_by_class[i]);
}

static double rate_limited(const struct api_key_stats *stats) {
    return (double)stats->rate_limited;
}

static double prompt_tokens(const struct api_key_stats *stats) {
    return (double)stats->prompt_tokens;
}

static double generation_tokens(const struct api_key_stats *stats) {
    return (double)stats->generation_tokens;
}

static double running(const struct api_key_stats *stats) {
    return (double)stats->num_running;
}

void metrics_http_write_keys(const struct metrics_text *w, const struct api_keys *keys) {
    static const struct {
        const char *name, *type, *help;
        double (*read)(const struct api_key_stats *stats);
    } metrics[] = {
        {"api_key_rate_limited_total", "counter", "API calls refused for a limit of the API key.",
         rate_limited},
        {"api_key_prompt_tokens_total", "counter", "Prompt tokens of API calls, by API key.",
         prompt_tokens},
        {"api_key_generation_tokens_total", "counter", "Tokens generated, by API key.",
         generation_tokens},
        {"api_key_requests_running", "gauge", "API calls queued or running, by API key.", running},
    };
    write_key_requests(w, keys);
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        const struct api_key *key = NULL;
        metrics_text_header(w, metrics[i].name, metrics[i].type, metrics[i].help);
        while ((key = api_keys_next(keys, key != NULL ? key->tenant : -1)) != NULL)
            write_key_sample(w, metrics[i].name, key, NULL, metrics[i].read(&key->stats));
    }
}
