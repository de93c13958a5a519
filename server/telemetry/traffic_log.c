#include "server/telemetry/traffic_log.h"

#include <stdio.h>
#include <string.h>

#define SHOWN_MESSAGE_BYTES 240
#define SHOWN_PARAM_BYTES 64

/* --- Rates --- */

static double percent(uint64_t part, uint64_t whole) {
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void describe(const struct traffic_log *log, const struct engine_stats *stats,
                     int64_t now_ms, char out[TRAFFIC_LOG_LINE_BYTES]) {
    double seconds = (double)(now_ms - log->since_ms) / 1e3;
    uint64_t queries = stats->prefix_queries - log->prefix_queries;
    int length =
        snprintf(out, TRAFFIC_LOG_LINE_BYTES,
                 "traffic    prompt %.1f tokens/s, generation %.1f tokens/s; %d running, %d "
                 "waiting; KV cache %.1f %% used",
                 (double)(stats->prompt_tokens - log->prompt_tokens) / seconds,
                 (double)(stats->generation_tokens - log->generation_tokens) / seconds,
                 (int)stats->num_running, (int)stats->num_waiting,
                 percent((uint64_t)stats->num_used_blocks, (uint64_t)stats->num_blocks));
    if (queries > 0)
        snprintf(out + length, TRAFFIC_LOG_LINE_BYTES - (size_t)length,
                 "; prefix cache had %.1f %% of the prompts",
                 percent(stats->prefix_hits - log->prefix_hits, queries));
}

bool traffic_log_update(struct traffic_log *log, const struct engine_stats *stats, int64_t now_ms,
                        char out[TRAFFIC_LOG_LINE_BYTES]) {
    bool is_first = log->since_ms == 0;
    if (!is_first && now_ms - log->since_ms < TRAFFIC_LOG_INTERVAL_MS)
        return false;
    bool has_traffic = stats->num_running > 0 || stats->num_waiting > 0 ||
                       stats->prompt_tokens > log->prompt_tokens ||
                       stats->generation_tokens > log->generation_tokens ||
                       stats->prefix_hits > log->prefix_hits;
    if (!is_first && has_traffic)
        describe(log, stats, now_ms, out);
    log->since_ms = now_ms;
    log->prompt_tokens = stats->prompt_tokens;
    log->generation_tokens = stats->generation_tokens;
    log->prefix_queries = stats->prefix_queries;
    log->prefix_hits = stats->prefix_hits;
    return !is_first && has_traffic;
}

/* --- Refusals --- */

static bool is_same(const char *one, const char *other) {
    return one == other || (one != NULL && other != NULL && strcmp(one, other) == 0);
}

static struct traffic_cause *find_cause(struct traffic_log *log, const struct api_error *error) {
    for (int i = 0; i < log->num_causes; i++)
        if (log->causes[i].status == error->status && is_same(log->causes[i].code, error->code))
            return &log->causes[i];
    if (log->num_causes == TRAFFIC_LOG_MAX_CAUSES)
        return &log->causes[TRAFFIC_LOG_MAX_CAUSES - 1];
    struct traffic_cause *cause = &log->causes[log->num_causes++];
    *cause = (struct traffic_cause){.status = error->status, .code = error->code};
    return cause;
}

/* Messages quote values that the client sent, after ", not " next to those that are allowed, and
 * what a chat template says of the messages. These may be parts of prompts, which are not logged;
 * the name of a model is shown. */
static void copy_message(const struct api_error *error, char out[SHOWN_MESSAGE_BYTES]) {
    const char *given = strstr(error->message, ", not "), *colon = strchr(error->message, ':');
    const char *first = strchr(given != NULL ? given : error->message, '"');
    const char *last = strrchr(error->message, '"');
    if (is_same(error->code, "chat_template_error") && colon != NULL)
        snprintf(out, SHOWN_MESSAGE_BYTES, "%.*s", (int)(colon - error->message), error->message);
    else if (first == NULL || is_same(error->code, "model_not_found"))
        snprintf(out, SHOWN_MESSAGE_BYTES, "%.*s", SHOWN_MESSAGE_BYTES - 1, error->message);
    else
        snprintf(out, SHOWN_MESSAGE_BYTES, "%.*s\"...\"%.32s", (int)(first - error->message),
                 error->message, last > first ? last + 1 : "");
}

struct details {
    char text[256];
    size_t length;
};

static void add(struct details *details, const char *label, const char *value) {
    if (value == NULL || value[0] == '\0' || details->length >= sizeof(details->text))
        return;
    details->length += (size_t)snprintf(
        details->text + details->length, sizeof(details->text) - details->length, "%s%s%.*s",
        details->length > 0 ? ", " : "", label, SHOWN_PARAM_BYTES, value);
}

bool traffic_log_refused(struct traffic_log *log, const struct access_record *record,
                         const struct api_error *error, int64_t now_ms,
                         char out[TRAFFIC_LOG_LINE_BYTES]) {
    struct traffic_cause *cause = find_cause(log, error);
    struct details details = {0};
    char message[SHOWN_MESSAGE_BYTES];
    if (cause->num_lines == 0 || now_ms - cause->since_ms >= TRAFFIC_LOG_INTERVAL_MS) {
        cause->since_ms = now_ms;
        cause->num_lines = 0;
    }
    if (cause->num_lines == TRAFFIC_LOG_MAX_LINES) {
        cause->num_withheld++;
        return false;
    }
    cause->num_lines++;
    copy_message(error, message);
    add(&details, "param ", error->param);
    add(&details, "key ", record->key);
    add(&details, "from ", record->client);
    add(&details, "", record->request_id);
    snprintf(out, TRAFFIC_LOG_LINE_BYTES, "refused    %s%s%s%s%d%s%s: %s (%s)",
             record->method != NULL ? record->method : "", record->route != NULL ? " " : "",
             record->route != NULL ? record->route : "", record->method != NULL ? ": " : "",
             error->status, error->code != NULL ? " " : "", error->code != NULL ? error->code : "",
             message, details.text);
    return true;
}

bool traffic_log_withheld(struct traffic_log *log, int64_t now_ms,
                          char out[TRAFFIC_LOG_LINE_BYTES]) {
    for (int i = 0; i < log->num_causes; i++) {
        struct traffic_cause *cause = &log->causes[i];
        if (cause->num_withheld == 0 || now_ms - cause->since_ms < TRAFFIC_LOG_INTERVAL_MS)
            continue;
        snprintf(out, TRAFFIC_LOG_LINE_BYTES,
                 "refused    %llu more with %d%s%s%s, not shown one by one",
                 (unsigned long long)cause->num_withheld, cause->status,
                 cause->code != NULL ? " " : "", cause->code != NULL ? cause->code : "",
                 i == TRAFFIC_LOG_MAX_CAUSES - 1 ? " and other causes" : "");
        cause->num_withheld = 0;
        return true;
    }
    return false;
}
