#include "server/client/bench_load.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "server/client/chat/chat_client.h"
#include "config/json/json_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define WAIT_MS 100
#define CONNECT_MS 10000
#define MAX_REFUSAL_BYTES ((size_t)1 << 20)

/* Each is one token with the space before it in the vocabularies of common models, as those of
 * scripts/bench/bench_prompts.py. */
static const char *const words[] = {
    "time",    "people", "water", "world",  "house",  "day",     "night",   "work",   "life",
    "place",   "school", "year",  "hand",   "part",   "child",   "eye",     "woman",  "man",
    "week",    "case",   "point", "number", "group",  "fact",    "money",   "story",  "month",
    "book",    "side",   "head",  "friend", "power",  "game",    "line",    "end",    "law",
    "car",     "city",   "name",  "team",   "idea",   "body",    "back",    "parent", "face",
    "level",   "office", "door",  "art",    "war",    "history", "party",   "result", "change",
    "morning", "reason", "girl",  "guy",    "moment", "air",     "teacher", "force",  "education",
};
#define NUM_WORDS (sizeof(words) / sizeof(words[0]))

/* splitmix64 (S. Vigna, prng.di.unimi.it/splitmix64.c, public domain): the next number. */
static uint64_t next_number(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

struct run {
    const struct bench_load *load;
    struct bench_figures *figures;
    struct http_client_group *group;
    uint64_t random;
    char path[HTTP_URL_BYTES + 32];
    int64_t end_ns; /* INT64_MAX: none */
    bool is_over;
};

/* One after the other. */
struct stream {
    struct run *run;
    struct http_client *client;
    struct http_client_request request;
    struct completion_stream events;
    struct byte_buffer body;
    int num_left; /* requests */
    int64_t sent_ns, first_ns, last_ns, num_events, prompt_tokens, completion_tokens;
    struct error err; /* of the events */
    bool is_broken;
};

static void add_sample(struct bench_samples *samples, int64_t begin_ns, int64_t end_ns) {
    if (samples->count == samples->capacity) {
        int64_t capacity = samples->capacity > 0 ? 2 * samples->capacity : 1024;
        float *grown = reallocarray(samples->values, (size_t)capacity, sizeof(*grown));
        CHECK(grown != NULL);
        samples->values = grown;
        samples->capacity = capacity;
    }
    samples->values[samples->count++] = (float)((double)(end_ns - begin_ns) * 1e-9);
}

static void add_cause(struct bench_figures *figures, const char *text) {
    int i = 0;
    figures->num_failed++;
    while (i < figures->num_causes &&
           strncmp(figures->causes[i].text, text, BENCH_CAUSE_BYTES - 1) != 0)
        i++;
    if (i == BENCH_MAX_CAUSES)
        i--;
    if (i == figures->num_causes) {
        snprintf(figures->causes[i].text, BENCH_CAUSE_BYTES, "%.*s", BENCH_CAUSE_BYTES - 1, text);
        figures->num_causes++;
    }
    figures->causes[i].count++;
}

static void write_prompt(struct run *run, struct byte_buffer *out) {
    struct byte_buffer text = {0};
    uint64_t shared = 0; /* the same sequence each time */
    for (int i = 0; i < run->load->input_tokens; i++) {
        uint64_t number = next_number(i < run->load->shared_tokens ? &shared : &run->random);
        byte_buffer_printf(&text, i > 0 ? " %s" : "%s", words[number % NUM_WORDS]);
    }
    json_write_string_member(out, "prompt", &text);
    byte_buffer_finish(&text);
}

static void write_body(struct run *run, struct byte_buffer *out) {
    char temperature[40];
    byte_buffer_clear(out);
    json_write_begin_object(out);
    json_write_text_member(out, "model", run->load->model);
    write_prompt(run, out);
    json_write_int_member(out, "max_tokens", run->load->output_tokens);
    snprintf(temperature, sizeof(temperature), "%.16g", run->load->temperature);
    json_write_raw_member(out, "temperature", temperature);
    json_write_raw_member(out, "ignore_eos", "true");
    json_write_raw_member(out, "stream", "true");
    json_write_raw_member(out, "stream_options", "{\"include_usage\":true}");
    json_write_end_object(out);
    CHECK(!out->failed);
}

static void on_event(void *context, const struct completion_event *event) {
    struct stream *stream = context;
    struct bench_figures *figures = stream->run->figures;
    int64_t now_ns = clock_now_ns();
    if (event->prompt_tokens >= 0)
        stream->prompt_tokens = event->prompt_tokens;
    if (event->completion_tokens >= 0)
        stream->completion_tokens = event->completion_tokens;
    if (event->text.length == 0)
        return;
    if (stream->num_events++ == 0) {
        stream->first_ns = now_ns;
        add_sample(&figures->first_token, stream->sent_ns, now_ns);
    } else {
        add_sample(&figures->between_tokens, stream->last_ns, now_ns);
    }
    stream->last_ns = now_ns;
}

static bool take(void *context, const char *data, size_t length) {
    struct stream *stream = context;
    stream->is_broken = completion_stream_take(&stream->events, data, length, &stream->err) != 0;
    return !stream->is_broken;
}

static bool is_over(void *context) {
    const struct stream *stream = context;
    return stream->run->is_over;
}

static void start_next(struct stream *stream);

static void count_answer(struct stream *stream) {
    struct bench_figures *figures = stream->run->figures;
    int64_t tokens =
        stream->completion_tokens >= 0 ? stream->completion_tokens : stream->num_events;
    figures->num_answered++;
    figures->output_tokens += tokens;
    figures->num_other_length += tokens != stream->run->load->output_tokens;
    figures->prompt_tokens += stream->prompt_tokens > 0 ? stream->prompt_tokens : 0;
    add_sample(&figures->whole, stream->sent_ns, stream->last_ns);
}

static void judge(struct stream *stream, int status, const struct http_answer *answer,
                  const struct error *err) {
    char cause[BENCH_CAUSE_BYTES];
    struct completion_refusal refusal;
    struct bench_figures *figures = stream->run->figures;
    if (status != 0) {
        add_cause(figures, err->message);
    } else if (stream->is_broken) {
        add_cause(figures, stream->err.message);
    } else if (answer->is_stopped) {
        figures->num_cut++;
        figures->output_tokens += stream->num_events;
    } else if (answer->status != 200) {
        completion_refusal_read(&answer->body, &refusal);
        snprintf(cause, sizeof(cause), "%d %.150s", answer->status, refusal.message);
        add_cause(figures, cause);
    } else if (stream->num_events == 0 || !stream->events.is_done) {
        add_cause(figures, stream->num_events == 0 ? "an answer without text"
                                                   : "an answer that ends in its middle");
    } else {
        count_answer(stream);
    }
}

static void on_done(void *context, int status, struct http_answer *answer,
                    const struct error *err) {
    struct stream *stream = context;
    judge(stream, status, answer, err);
    if (status == 0)
        byte_buffer_finish(&answer->body);
    completion_stream_finish(&stream->events);
    if (!stream->run->is_over && stream->num_left > 0)
        start_next(stream);
}

static void start_next(struct stream *stream) {
    struct run *run = stream->run;
    const char *key_field = run->load->key_field;
    if (run->load->requests_per_stream > 0)
        stream->num_left--;
    write_body(run, &stream->body);
    stream->events = (struct completion_stream){.on_event = on_event, .context = stream};
    stream->num_events = 0;
    stream->prompt_tokens = stream->completion_tokens = -1;
    stream->is_broken = false;
    stream->request = (struct http_client_request){
        .url = run->load->url,
        .path = run->path,
        .fields = {"Content-Type: application/json", key_field[0] != '\0' ? key_field : NULL},
        .body = stream->body.data,
        .body_bytes = stream->body.length,
        .connect_timeout_ms = CONNECT_MS,
        .max_answer_bytes = MAX_REFUSAL_BYTES,
        .take = take,
        .is_stopped = is_over,
        .context = stream,
    };
    stream->sent_ns = clock_now_ns();
    CHECK(http_client_group_start(run->group, stream->client, &stream->request, on_done, stream) ==
          0);
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* All streams are there. */
static void run_streams(struct run *run, struct stream *streams) {
    int64_t begin_ns = clock_now_ns();
    double cpu_begin = cpu_seconds();
    if (run->load->seconds > 0)
        run->end_ns = begin_ns + (int64_t)(run->load->seconds * 1e9);
    for (int i = 0; i < run->load->num_streams; i++)
        start_next(&streams[i]);
    while (http_client_group_run(run->group, WAIT_MS) > 0)
        run->is_over |= clock_now_ns() >= run->end_ns || run->load->is_interrupted();
    run->figures->seconds = (double)(clock_now_ns() - begin_ns) * 1e-9;
    run->figures->client_busy = (cpu_seconds() - cpu_begin) / run->figures->seconds;
}

int bench_load_run(const struct bench_load *load, struct bench_figures *out, struct error *err) {
    struct bench_figures figures = {0};
    struct run run = {.load = load, .figures = &figures, .random = load->seed, .end_ns = INT64_MAX};
    struct stream *streams = calloc((size_t)load->num_streams, sizeof(*streams));
    run.group = http_client_group_create();
    bool is_good = streams != NULL && run.group != NULL;
    snprintf(run.path, sizeof(run.path), "%s/v1/completions", load->url->path);
    for (int i = 0; i < load->num_streams && is_good; i++) {
        streams[i] = (struct stream){
            .run = &run,
            .client = http_client_create(),
            .num_left = load->requests_per_stream > 0 ? load->requests_per_stream : 1};
        is_good = streams[i].client != NULL;
    }
    if (is_good)
        run_streams(&run, streams);
    http_client_group_destroy(run.group);
    for (int i = 0; streams != NULL && i < load->num_streams; i++) {
        http_client_destroy(streams[i].client);
        byte_buffer_finish(&streams[i].body);
    }
    free(streams);
    if (!is_good)
        return error_set(err, ERROR_MEMORY, "no memory for %d streams", load->num_streams);
    *out = figures;
    return 0;
}

void bench_figures_finish(struct bench_figures *figures) {
    free(figures->first_token.values);
    free(figures->between_tokens.values);
    free(figures->whole.values);
    *figures = (struct bench_figures){0};
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double bench_samples_quantile(struct bench_samples *samples, double share) {
    if (samples->count == 0)
        return 0;
    qsort(samples->values, (size_t)samples->count, sizeof(*samples->values), compare);
    int64_t rank = (int64_t)(share * (double)samples->count);
    return (double)samples->values[rank < samples->count ? rank : samples->count - 1];
}
