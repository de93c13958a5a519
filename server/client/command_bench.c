/* `quire bench`: a load of completions on a running server, and what it reached. */
#include "server/client/client.h"

#include "config/base/help_text.h"
#include "config/base/byte_buffer.h"
#include "server/client/bench_load.h"
#include "server/client/chat/chat_client.h"
#include "config/json/json_write.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define MAX_ROUNDS 16
#define STATUS_FAILED 1
#define WARM_UP_SEED 1
#define WARM_UP_TOKENS 16 /* of an answer, at most */
#define BUSY_SHARE 0.5    /* of a core, above which this program may be what is measured */

static const char usage[] =
    "usage: quire bench [URL] [--NAME VALUE ...]\n"
    "\n"
    "The server:\n"
    "  URL\thttp or https; default " CLIENT_DEFAULT_URL "\n"
    "  --model NAME\tdefault: the first of /v1/models\n"
    "  --api-key-env NAME\tenvironment variable with the API key; default QUIRE_API_KEY\n"
    "  for example: quire bench http://gpu1:8000\n"
    "\n"
    "The load:\n"
    "  --concurrency N,N\tstreams at a time, one round for each; default 1,8,32\n"
    "  --input-tokens N\tof each prompt, about, 1 to 1000000; default 64\n"
    "  --output-tokens N\tof each answer, 1 to 1000000; default 128\n"
    "  --shared-tokens N\tat the beginning of every prompt, the same in all, for a prefix cache; "
    "default 0: no two prompts begin alike\n"
    "  --requests N\tof each stream, 1 to 1000000; default 2\n"
    "  --seconds N\tend each round then, 1 to 86400, instead of by requests\n"
    "  --warm-up N\tshort requests before the first round, 0 to 1000; default 1\n"
    "  --temperature N\t0 to 2; default 0\n"
    "  --seed N\tof the prompts; default 0, the same prompts each time\n"
    "  for example: quire bench --concurrency 1,16 --input-tokens 512\n"
    "\n"
    "The result:\n"
    "  --json FILE\twrite all figures there\n"
    "  for example: quire bench --json before.json\n"
    "\n"
    "Status 0; 1 if a request failed, and the causes are shown; 69: no server.\n";

struct bench {
    const char *url, *key_variable, *model, *json_path;
    int rounds[MAX_ROUNDS], num_rounds;
    double input_tokens, output_tokens, shared_tokens, requests, seconds, warm_up, temperature,
        seed;
    struct chat_client client;
    struct byte_buffer json;
};

static volatile sig_atomic_t has_signal;

static void note_signal(int number) {
    has_signal = 1;
}

static bool is_interrupted(void) {
    return has_signal != 0;
}

static int refuse(const char *name, const char *value, const char *allowed) {
    fprintf(stderr, "quire bench: %.64s %.64s: %s\n", name, value != NULL ? value : "", allowed);
    return -1;
}

static int read_number(const char *text, double minimum, double maximum, double *out) {
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= minimum && *out <= maximum ? 0 : -1;
}

static int read_rounds(struct bench *bench, const char *text) {
    bench->num_rounds = 0;
    while (bench->num_rounds < MAX_ROUNDS) {
        char *end;
        long count = strtol(text, &end, 10);
        if (end == text || count < 1 || count > BENCH_MAX_STREAMS || (*end != ',' && *end != '\0'))
            return -1;
        bench->rounds[bench->num_rounds++] = (int)count;
        if (*end == '\0')
            return 0;
        text = end + 1;
    }
    return -1;
}

static int set_number(struct bench *bench, const char *name, const char *value) {
    const struct {
        const char *name;
        double minimum, maximum;
        bool is_whole;
        double *target;
    } numbers[] = {
        {"--input-tokens", 1, 1e6, true, &bench->input_tokens},
        {"--output-tokens", 1, 1e6, true, &bench->output_tokens},
        {"--shared-tokens", 0, 1e6, true, &bench->shared_tokens},
        {"--requests", 1, 1e6, true, &bench->requests},
        {"--seconds", 1, 86400, false, &bench->seconds},
        {"--warm-up", 0, 1000, true, &bench->warm_up},
        {"--temperature", 0, 2, false, &bench->temperature},
        {"--seed", 0, 9007199254740991, true, &bench->seed},
    };
    char allowed[96];
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(numbers[i].name, name) != 0)
            continue;
        double number;
        snprintf(allowed, sizeof(allowed), "%s of %.16g to %.16g is allowed",
                 numbers[i].is_whole ? "a whole number" : "a number", numbers[i].minimum,
                 numbers[i].maximum);
        if (value == NULL ||
            read_number(value, numbers[i].minimum, numbers[i].maximum, &number) != 0 ||
            (numbers[i].is_whole && number != (double)(int64_t)number))
            return refuse(name, value, allowed);
        *numbers[i].target = number;
        return 0;
    }
    return refuse(name, NULL, "no such option; --help lists them");
}

static int set_option(struct bench *bench, const char *name, const char *value) {
    const struct {
        const char *name;
        const char **target;
    } texts[] = {{"--model", &bench->model},
                 {"--api-key-env", &bench->key_variable},
                 {"--json", &bench->json_path}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(texts[i].name, name) != 0)
            continue;
        *texts[i].target = value;
        return value != NULL ? 0 : refuse(name, NULL, "needs a value after it");
    }
    if (strcmp(name, "--concurrency") == 0)
        return value != NULL && read_rounds(bench, value) == 0
                   ? 0
                   : refuse(name, value, "up to 16 numbers of 1 to 1024, with commas between them");
    return set_number(bench, name, value);
}

static int read_words(struct bench *bench, int argc, char *const *argv) {
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] == '-') {
            if (set_option(bench, argv[i], i + 1 < argc ? argv[i + 1] : NULL) != 0)
                return -1;
            i++;
        } else if (bench->url == NULL) {
            bench->url = argv[i];
        } else {
            return refuse(argv[i], NULL, "one URL is allowed");
        }
    }
    return bench->shared_tokens <= bench->input_tokens
               ? 0
               : refuse("--shared-tokens", NULL, "more than --input-tokens");
}

static void show_quantiles(struct bench_samples *samples) {
    for (int i = 0; i < 3; i++)
        printf(" %8.1f",
               1e3 * bench_samples_quantile(samples, (const double[]){0.5, 0.9, 0.99}[i]));
}

static void show(int num_streams, struct bench_figures *figures) {
    printf("%7d %8lld %9.1f %9.2f", num_streams, (long long)figures->num_answered,
           (double)figures->output_tokens / figures->seconds,
           (double)figures->num_answered / figures->seconds);
    show_quantiles(&figures->first_token);
    show_quantiles(&figures->between_tokens);
    printf(" %6lld\n", (long long)figures->num_failed);
    for (int i = 0; i < figures->num_causes; i++)
        printf("        %lld failed: %s\n", (long long)figures->causes[i].count,
               figures->causes[i].text);
    if (figures->num_other_length > 0)
        printf("        %lld answers of another length\n", (long long)figures->num_other_length);
    if (figures->client_busy > BUSY_SHARE)
        printf("        this program used %.0f %% of a core: it may be what is measured\n",
               100 * figures->client_busy);
    fflush(stdout);
}

static void write_number(struct byte_buffer *out, const char *name, double value) {
    char text[40];
    snprintf(text, sizeof(text), "%.9g", value);
    json_write_raw_member(out, name, text);
}

static void write_quantiles(struct byte_buffer *out, const char *name,
                            struct bench_samples *samples) {
    json_write_key(out, name);
    json_write_begin_object(out);
    write_number(out, "p50", 1e3 * bench_samples_quantile(samples, 0.5));
    write_number(out, "p90", 1e3 * bench_samples_quantile(samples, 0.9));
    write_number(out, "p99", 1e3 * bench_samples_quantile(samples, 0.99));
    json_write_end_object(out);
}

static void write_round(struct byte_buffer *out, int num_streams, struct bench_figures *figures) {
    json_write_begin_object(out);
    json_write_int_member(out, "concurrency", num_streams);
    json_write_int_member(out, "requests", figures->num_answered);
    json_write_int_member(out, "failures", figures->num_failed);
    json_write_int_member(out, "cut", figures->num_cut);
    json_write_int_member(out, "wrong_length", figures->num_other_length);
    json_write_int_member(out, "prompt_tokens", figures->prompt_tokens);
    json_write_int_member(out, "output_tokens", figures->output_tokens);
    write_number(out, "seconds", figures->seconds);
    write_number(out, "tokens_per_second", (double)figures->output_tokens / figures->seconds);
    write_number(out, "requests_per_second", (double)figures->num_answered / figures->seconds);
    write_number(out, "client_busy", figures->client_busy);
    write_quantiles(out, "ttft_ms", &figures->first_token);
    write_quantiles(out, "itl_ms", &figures->between_tokens);
    write_quantiles(out, "request_ms", &figures->whole);
    json_write_key(out, "errors");
    json_write_begin_object(out);
    for (int i = 0; i < figures->num_causes; i++)
        json_write_int_member(out, figures->causes[i].text, figures->causes[i].count);
    json_write_end_object(out);
    json_write_end_object(out);
}

static int write_json(const struct bench *bench) {
    struct byte_buffer text = {0};
    json_write_begin_object(&text);
    json_write_text_member(&text, "url", bench->client.url.origin);
    json_write_text_member(&text, "model", bench->client.model);
    json_write_array_member(&text, "rounds", &bench->json);
    json_write_end_object(&text);
    byte_buffer_append_text(&text, "\n");
    FILE *file = fopen(bench->json_path, "we");
    bool is_written =
        !text.failed && file != NULL && fwrite(text.data, 1, text.length, file) == text.length;
    if (file != NULL)
        is_written = fclose(file) == 0 && is_written;
    byte_buffer_finish(&text);
    return is_written ? EX_OK : (refuse("--json", bench->json_path, strerror(errno)), EX_OSERR);
}

static struct bench_load load_of(const struct bench *bench, int number) {
    return (struct bench_load){
        .url = &bench->client.url,
        .key_field = bench->client.key_field,
        .model = bench->client.model,
        .num_streams = bench->rounds[number],
        .requests_per_stream = bench->seconds > 0 ? 0 : (int)bench->requests,
        .seconds = bench->seconds,
        .input_tokens = (int)bench->input_tokens,
        .shared_tokens = (int)bench->shared_tokens,
        .output_tokens = (int)bench->output_tokens,
        .temperature = bench->temperature,
        .seed = ((uint64_t)bench->seed << 8) + 2 + (uint64_t)number,
        .is_interrupted = is_interrupted,
    };
}

static int warm_up(const struct bench *bench, struct error *err) {
    struct bench_figures figures;
    struct bench_load load = load_of(bench, 0);
    load.num_streams = 1;
    load.requests_per_stream = (int)bench->warm_up;
    load.seconds = 0;
    load.seed = WARM_UP_SEED;
    if (load.output_tokens > WARM_UP_TOKENS)
        load.output_tokens = WARM_UP_TOKENS;
    if (bench->warm_up < 1)
        return 0;
    if (bench_load_run(&load, &figures, err) != 0)
        return -1;
    int status = figures.num_failed == 0
                     ? 0
                     : error_set(err, ERROR_IO, "the warm-up failed: %s", figures.causes[0].text);
    bench_figures_finish(&figures);
    return status;
}

static int run_rounds(struct bench *bench, struct error *err) {
    int status = EX_OK;
    printf("%s at %s: %.0f tokens in, %.0f out; milliseconds\n", bench->client.model,
           bench->client.url.origin, bench->input_tokens, bench->output_tokens);
    printf("%7s %8s %9s %9s %8s %8s %8s %8s %8s %8s %6s\n", "streams", "requests", "tokens/s",
           "requests/s", "TTFT p50", "p90", "p99", "ITL p50", "p90", "p99", "failed");
    for (int i = 0; i < bench->num_rounds && !is_interrupted(); i++) {
        struct bench_figures figures;
        struct bench_load load = load_of(bench, i);
        if (bench_load_run(&load, &figures, err) != 0)
            return -1;
        show(load.num_streams, &figures);
        write_round(&bench->json, load.num_streams, &figures);
        if (figures.num_failed > 0)
            status = STATUS_FAILED;
        bench_figures_finish(&figures);
    }
    return status;
}

static int run(struct bench *bench) {
    struct error err;
    const char *url = bench->url != NULL ? bench->url : CLIENT_DEFAULT_URL;
    if (chat_client_open(url, NULL, bench->key_variable, &bench->client, &err) != 0) {
        fprintf(stderr, "quire bench: %s\n", err.message);
        return EX_USAGE;
    }
    int status = -1;
    if (bench->model != NULL)
        snprintf(bench->client.model, sizeof(bench->client.model), "%s", bench->model);
    if ((bench->model != NULL || chat_client_find_model(&bench->client, NULL, &err) == 0) &&
        warm_up(bench, &err) == 0)
        status = run_rounds(bench, &err);
    if (status < 0) {
        fprintf(stderr, "quire bench: %s\n", err.message);
        return EX_UNAVAILABLE;
    }
    int written = bench->json_path != NULL ? write_json(bench) : EX_OK;
    return status != EX_OK ? status : written;
}

int command_bench(int argc, char *const *argv) {
    const struct sigaction action = {.sa_handler = note_signal};
    struct bench bench = {.key_variable = "QUIRE_API_KEY",
                          .rounds = {1, 8, 32},
                          .num_rounds = 3,
                          .input_tokens = 64,
                          .output_tokens = 128,
                          .requests = 2,
                          .warm_up = 1};
    if (client_wants_help(argc, argv)) {
        help_text_print(usage, stdout);
        return EX_OK;
    }
    if (read_words(&bench, argc, argv) != 0)
        return EX_USAGE;
    sigaction(SIGINT, &action, NULL);
    int status = run(&bench);
    chat_client_close(&bench.client);
    byte_buffer_finish(&bench.json);
    return status;
}
