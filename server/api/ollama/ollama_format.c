#include "server/api/ollama/ollama_format.h"

#include "config/json/json_write.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

void ollama_format_error(const struct api_error *err, const char *request_id,
                         struct byte_buffer *out) {
    (void)request_id;
    json_write_begin_object(out);
    json_write_text_member(out, "error", err->message);
    json_write_end_object(out);
}

void ollama_format_time(const char *name, int64_t seconds, int64_t nanoseconds,
                        struct byte_buffer *out) {
    char date[32], text[64];
    struct tm tm;
    const time_t time = (time_t)seconds;
    gmtime_r(&time, &tm);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof(text), "%s.%06dZ", date, (int)(nanoseconds / 1000));
    json_write_text_member(out, name, text);
}

/* At least 1, as programs divide by it: a single token takes no time after the first. */
static void write_duration(const char *name, int64_t from_ns, int64_t to_ns,
                           struct byte_buffer *out) {
    json_write_int_member(out, name, from_ns > 0 && to_ns > from_ns ? to_ns - from_ns : 1);
}

void ollama_format_counts(const struct api_call *call, struct byte_buffer *out) {
    const struct api_call_usage usage = api_call_total_usage(call);
    struct request *request = call->prompts[0].request;
    int64_t scheduled = atomic_load(&request->times.scheduled_ns),
            first = atomic_load(&request->times.first_token_ns),
            last = atomic_load(&request->times.last_token_ns);
    write_duration("total_duration", request->arrival_ns, last, out);
    json_write_int_member(out, "load_duration", 0);
    json_write_int_member(out, "prompt_eval_count", usage.prompt_tokens);
    write_duration("prompt_eval_duration", scheduled, first, out);
    json_write_int_member(out, "eval_count", usage.completion_tokens);
    write_duration("eval_duration", first, last, out);
}
