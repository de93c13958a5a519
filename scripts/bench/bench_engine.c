/* Speed of scheduler, engine and device without HTTP: requests are submitted as the server submits
 * them, one line of JSON for each number of requests at once.
 *
 *   bench_engine DEVICE auto|bf16|f16 MODEL [OPTION VALUE]...
 *
 *   workloads           a list of IN/OUT as in 100/128, tokens of every prompt and answer; or
 *                       sharegpt: lengths differ, as of ShareGPT (scripts/bench/workloads.py);
 *                       sharegpt-N: none longer than N
 *   concurrency         a list as in 1,8,64: requests at once; when one ends, the next begins
 *   requests            of each of those, one after the other
 *   seconds             of each number of requests at most; the rest is cut short; 0: no limit
 *   temperature, top-p  in thousandths: 1000 is 1
 *   max-model-len, max-num-seqs, max-num-batched-tokens, kv-mib, batch-invariant, async-scheduling
 *                       as of `quire serve`; 0: chosen by the device
 *   seed                of lengths and prompts
 *
 * A prompt's tokens are random, so that no two begin alike. An answer of another length than
 * requested ends the program with status 1, a device that is not there with 77. `wait_us` is how
 * long the engine waited for a step, `empty_us` how long no step was submitted, so that the device
 * had nothing to do; both of a step. `mean_batch` is the output tokens of a step, `step_tokens` all
 * that it computed. `gap_p50_us` and `gap_p99_us` are of the gap before a step, `host_p50_us` has
 * the median of each part of the engine thread's time for a step (engine_stats.h), all interpolated
 * in the buckets of /metrics; null: there was no step. */
#include "config/base/clock.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/config/model.h"
#include "models/tokenizer/tokenizer.h"
#include "scripts/bench/engine_settings.h"
#include "scripts/bench/watched_executor.h"

#include <err.h>
#include <errno.h>
#include <math.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

enum { BLOCK_SIZE = 16, POLL_MS = 50, DEVICE_TIMEOUT_S = 60, EXIT_ABSENT = 77 };

/* --- An engine ready to run --- */

struct engine_bench {
    const struct engine_settings *settings;
    struct model *model;
    struct tokenizer *tokenizer;
    struct executor *executor;
    struct watched_executor watched;
    struct executor_info info;
    struct engine *engine;
    sem_t ready; /* the engine has events */
    uint64_t random;
};

static void wake(void *context) {
    struct engine_bench *bench = context;
    sem_post(&bench->ready);
}

static enum dtype dtype_of(const char *name) {
    if (strcmp(name, "auto") == 0)
        return DTYPE_AUTO;
    if (strcmp(name, "bf16") != 0 && strcmp(name, "f16") != 0)
        errx(1, "%s: must be auto, bf16 or f16", name);
    return strcmp(name, "f16") == 0 ? DTYPE_F16 : DTYPE_BF16;
}

/* Also with a GPU that hangs, for which exit(3) would wait. */
static _Noreturn void end(const struct engine_bench *bench, int status) {
    if (bench->executor != NULL && executor_has_hung(bench->executor))
        _exit(EX_SOFTWARE);
    exit(status);
}

static void open_executor(struct engine_bench *bench, const char *device, const char *dtype) {
    const struct engine_settings *s = bench->settings;
    const struct model_config *model = &bench->model->config;
    struct error err = {0};
    const struct executor_config config = {
        .device = device,
        .dtype = dtype_of(dtype),
        .quantization = DTYPE_NONE,
        .kv_type = KV_AUTO,
        .batch_invariant = s->batch_invariant != 0,
        .gpu_memory_utilization = 0.9,
        .kv_memory_bytes = (size_t)s->kv_mib << 20,
        .swap_bytes = EXECUTOR_SWAP_AUTO,
        .device_timeout_s = DEVICE_TIMEOUT_S,
        .limits = {.max_num_seqs = (int32_t)s->max_num_seqs,
                   .max_num_batched_tokens = (int32_t)s->max_num_batched_tokens,
                   .max_model_len =
                       s->max_model_len > 0 ? (int32_t)s->max_model_len : model->max_position,
                   .block_size = BLOCK_SIZE,
                   .vocab_size = model->vocab_size,
                   .hidden_size = model->hidden_size,
                   .window = model_window(model)}};
    if (executor_create(bench->model, &config, &bench->info, &bench->executor, &err) != 0) {
        warnx("%s", err.message);
        bool is_absent = strncmp(device, "cpu", 3) != 0 && backend_device_memory(device) == 0;
        end(bench, is_absent ? EXIT_ABSENT : 1);
    }
    watched_executor_init(&bench->watched, bench->executor);
    fprintf(stderr, "%s: %s\n", bench->info.device, bench->info.description);
}

static void open_engine(struct engine_bench *bench, char **argv) {
    struct error err = {0};
    if (model_open(argv[3], &bench->model, &err) != 0 ||
        tokenizer_open(bench->model, &bench->tokenizer, &err) != 0)
        errx(1, "%s", err.message);
    open_executor(bench, argv[1], argv[2]);
    sem_init(&bench->ready, 0, 0);
    const struct engine_config config = {
        .core.schedule.kv.limits = &bench->info.limits,
        .core.schedule.swap_block_ns = bench->info.swap_block_ns,
        .core.schedule.kv.num_tenants = 1,
        .core.schedule.kv.caching = true,
        .core.async_scheduling = bench->settings->async_scheduling != 0,
        .max_queued_requests = ENGINE_SETTINGS_MAX_CONCURRENCY,
        .max_queued_tokens = INT64_MAX,
        .core.stall_timeout_ns = 120000 * CLOCK_NS_PER_MS,
        .wake = wake,
        .wake_context = bench,
    };
    if (engine_create(&config, &bench->watched.base, bench->tokenizer, &bench->engine, &err) != 0)
        errx(1, "%s", err.message);
}

static void close_engine(struct engine_bench *bench) {
    engine_destroy(bench->engine);
    bench->executor->ops->destroy(bench->executor);
    tokenizer_close(bench->tokenizer);
    model_close(bench->model);
    sem_destroy(&bench->ready);
}

/* --- Requests --- */

/* Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014). */
static uint64_t next_random(struct engine_bench *bench) {
    uint64_t z = bench->random += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static double next_normal(struct engine_bench *bench) {
    double a = (double)(next_random(bench) >> 11) * 0x1p-53;
    double b = (double)(next_random(bench) >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(1.0 - a)) * cos(2.0 * 3.14159265358979323846 * b);
}

/* The laws of scripts/bench/workloads.py. */
static int32_t sharegpt_length(struct engine_bench *bench, double most, double log_median,
                               double deviation) {
    for (;;) {
        double length = exp(log_median + deviation * next_normal(bench));
        if (length >= ENGINE_SETTINGS_LEAST_TOKENS && length <= most)
            return (int32_t)lround(length);
    }
}

/* A request under way, and its place for the next one. */
struct call {
    struct request *request; /* NULL: none */
    int64_t sent_ns;
    int32_t num_tokens;
};

struct point {
    struct engine_bench *bench;
    const struct engine_workload *workload;
    int32_t concurrency;
    struct call *calls; /* [concurrency] */
    int64_t num_requests, num_sent, num_done, num_cut, num_firsts;
    int64_t prompt_tokens, output_tokens;
    bool is_over; /* the time is */
    double *first_ms, *latency_ms;
};

static struct request *make_request(const struct point *point) {
    struct engine_bench *bench = point->bench;
    const struct engine_settings *s = bench->settings;
    const struct engine_workload *w = point->workload;
    bool is_fixed = w->tokens_in > 0;
    int32_t in = is_fixed ? w->tokens_in : sharegpt_length(bench, w->most_tokens, 4.9396, 1.1);
    int32_t out = is_fixed ? w->tokens_out : sharegpt_length(bench, w->most_tokens, 4.8547, 0.9);
    int32_t *prompt = malloc((size_t)in * sizeof(*prompt));
    if (prompt == NULL)
        errx(1, "memory is short");
    for (int32_t i = 0; i < in; i++)
        prompt[i] = (int32_t)(next_random(bench) % (uint64_t)bench->model->config.vocab_size);
    struct sampling_params params = {
        .num_choices = 1,
        .max_tokens = out,
        .settings = SAMPLING_SETTINGS_NEUTRAL,
        .seed = next_random(bench),
        .num_logprobs = -1,
        .num_prompt_logprobs = -1,
        .ignore_eos = true,
        .skip_special_tokens = true,
    };
    params.settings.temperature = (float)s->temperature / 1000.0F;
    params.settings.top_p = (float)s->top_p / 1000.0F;
    struct request *request = request_create(prompt, in, &params);
    free(prompt);
    if (request == NULL)
        errx(1, "memory is short");
    return request;
}

static void send_request(struct point *point, struct call *call) {
    struct request *request = make_request(point);
    *call = (struct call){.request = request, .sent_ns = clock_now_ns()};
    request->user = call;
    enum submit_result result = engine_submit(point->bench->engine, request);
    if (result != SUBMIT_OK)
        errx(1, "the engine refused a request of %d tokens for %d, submit result %d",
             request->num_prompt_tokens, request->params.max_tokens, (int)result);
    point->num_sent++;
    point->prompt_tokens += request->num_prompt_tokens;
}

static double ms_since(int64_t start_ns) {
    return (double)(clock_now_ns() - start_ns) / (double)CLOCK_NS_PER_MS;
}

static void end_call(struct point *point, struct call *call, enum finish_reason finish) {
    int32_t asked = call->request->params.max_tokens;
    bool is_cut = finish == FINISH_ABORT && point->is_over;
    if (!is_cut && (finish != FINISH_LENGTH || call->num_tokens != asked))
        errx(1, "a request for %d tokens ended after %d, finish reason %d", asked, call->num_tokens,
             (int)finish);
    request_unref(call->request);
    call->request = NULL;
    point->num_cut += is_cut;
    if (!is_cut)
        point->latency_ms[point->num_done++] = ms_since(call->sent_ns);
    if (!point->is_over && point->num_sent < point->num_requests)
        send_request(point, call);
}

static void read_events(struct point *point, struct call *call, struct token_buffer *buffer) {
    struct token_event event;
    enum finish_reason finish = FINISH_NONE;
    token_stream_take(&call->request->stream, buffer);
    while (token_buffer_next(buffer, &event)) {
        if (event.num_tokens > 0 && call->num_tokens == 0)
            point->first_ms[point->num_firsts++] = ms_since(call->sent_ns);
        call->num_tokens += event.num_tokens;
        point->output_tokens += point->is_over ? 0 : event.num_tokens;
        finish = event.finish;
    }
    if (finish != FINISH_NONE)
        end_call(point, call, finish);
}

static void take_ready(struct point *point, struct token_buffer *buffer) {
    struct request *ready[64];
    int count;
    do {
        count = engine_take_ready(point->bench->engine, ready, 64);
        for (int i = 0; i < count; i++) {
            struct call *call = ready[i]->user;
            if (call->request == ready[i])
                read_events(point, call, buffer);
            request_unref(ready[i]);
        }
    } while (count == 64);
}

static void wait_ready(struct engine_bench *bench) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += POLL_MS * CLOCK_NS_PER_MS;
    until.tv_sec += until.tv_nsec / CLOCK_NS_PER_S;
    until.tv_nsec %= CLOCK_NS_PER_S;
    while (sem_timedwait(&bench->ready, &until) != 0 && errno == EINTR)
        ;
    if (engine_has_failed(bench->engine)) {
        warnx("%s", engine_failure(bench->engine).message);
        end(bench, 1);
    }
}

static void cancel_all(struct point *point) {
    for (int32_t i = 0; i < point->concurrency; i++)
        if (point->calls[i].request != NULL)
            engine_cancel(point->bench->engine, point->calls[i].request);
}

/* Until all requests have ended or, with a deadline, until then. */
static void run_until(struct point *point, int64_t deadline_ns) {
    struct token_buffer buffer = {0};
    while (point->num_done + point->num_cut < point->num_sent &&
           (deadline_ns == 0 || clock_now_ns() < deadline_ns)) {
        wait_ready(point->bench);
        take_ready(point, &buffer);
    }
    token_buffer_finish(&buffer);
}

/* --- One number of requests at once --- */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank; 0 without values. */
static double percentile(double *values, int64_t count, double share) {
    qsort(values, (size_t)count, sizeof(*values), compare);
    int64_t rank = (int64_t)(share * (double)count);
    return count == 0 ? 0.0 : values[rank < count ? rank : count - 1];
}

/* What was counted at one moment. */
struct reading {
    struct engine_stats stats;
    int64_t time_ns, wait_ns, empty_ns;
};

static void read_counts(struct engine_bench *bench, struct reading *out) {
    engine_get_stats(bench->engine, &out->stats);
    out->time_ns = clock_now_ns();
    out->wait_ns = atomic_load(&bench->watched.wait_ns);
    out->empty_ns = atomic_load(&bench->watched.empty_ns);
}

/* Prints microseconds of what a histogram of seconds counted in between. */
static void print_quantile(const char *name, double quantile, const struct histogram *start,
                           const struct histogram *end) {
    struct histogram between = *end;
    histogram_subtract(&between, start);
    double seconds = histogram_quantile(&between, quantile);
    if (isnan(seconds))
        printf("\"%s\": null", name);
    else
        printf("\"%s\": %.2f", name, seconds * 1e6);
}

static void print_step_times(const struct engine_stats *start, const struct engine_stats *end) {
    print_quantile("gap_p50_us", 0.5, &start->step_gap, &end->step_gap);
    printf(", ");
    print_quantile("gap_p99_us", 0.99, &start->step_gap, &end->step_gap);
    printf(", \"host_p50_us\": {");
    for (int i = 0; i < NUM_STEP_PARTS; i++) {
        printf("%s", i > 0 ? ", " : "");
        print_quantile(step_part_name((enum step_part)i), 0.5, &start->step_host[i],
                       &end->step_host[i]);
    }
    printf("}, ");
}

static void print_point(struct point *p, const struct reading *start, const struct reading *end) {
    double seconds = (double)(end->time_ns - start->time_ns) / (double)CLOCK_NS_PER_S;
    double steps = (double)(end->stats.step - start->stats.step);
    double step_us = 1e6 / (steps > 0.0 ? steps : 1.0);
    double computed = end->stats.iteration_tokens.sum - start->stats.iteration_tokens.sum;
    double prompt_tokens = (double)(end->stats.prompt_tokens - start->stats.prompt_tokens);
    printf("{\"op\": \"engine\", \"shape\": \"%s\", \"concurrency\": %d, \"requests\": %lld, "
           "\"cut\": %lld, \"seconds\": %.3f, \"output_tokens\": %lld, \"prompt_tokens\": %.0f, ",
           p->workload->name, p->concurrency, (long long)p->num_done, (long long)p->num_cut,
           seconds, (long long)p->output_tokens, prompt_tokens);
    printf("\"tokens_per_s\": %.1f, \"total_tokens_per_s\": %.1f, \"steps\": %.0f, "
           "\"step_us\": %.1f, \"mean_batch\": %.2f, \"step_tokens\": %.2f, ",
           (double)p->output_tokens / seconds, ((double)p->output_tokens + prompt_tokens) / seconds,
           steps, seconds * step_us, (double)p->output_tokens / (steps > 0.0 ? steps : 1.0),
           computed / (steps > 0.0 ? steps : 1.0));
    printf("\"wait_us\": %.1f, \"empty_us\": %.1f, \"preemptions\": %llu, ",
           1e-9 * (double)(end->wait_ns - start->wait_ns) * step_us,
           1e-9 * (double)(end->empty_ns - start->empty_ns) * step_us,
           (unsigned long long)(end->stats.preemptions - start->stats.preemptions));
    print_step_times(&start->stats, &end->stats);
    printf(
        "\"ttft_p50_ms\": %.3f, \"ttft_p99_ms\": %.3f, \"request_p50_ms\": %.3f, "
        "\"request_p99_ms\": %.3f}\n",
        percentile(p->first_ms, p->num_firsts, 0.5), percentile(p->first_ms, p->num_firsts, 0.99),
        percentile(p->latency_ms, p->num_done, 0.5), percentile(p->latency_ms, p->num_done, 0.99));
    fflush(stdout);
}

static void *allocate(size_t count, size_t bytes) {
    void *memory = calloc(count, bytes);
    if (memory == NULL)
        errx(1, "memory is short");
    return memory;
}

static void measure(struct engine_bench *bench, const struct engine_workload *workload,
                    int32_t concurrency) {
    const struct engine_settings *s = bench->settings;
    struct point point = {.bench = bench, .workload = workload, .concurrency = concurrency};
    struct reading start, end;
    point.num_requests = concurrency * s->requests;
    point.calls = allocate((size_t)concurrency, sizeof(*point.calls));
    point.first_ms = allocate((size_t)point.num_requests, sizeof(*point.first_ms));
    point.latency_ms = allocate((size_t)point.num_requests, sizeof(*point.latency_ms));
    read_counts(bench, &start);
    atomic_store(&bench->watched.from_ns, start.time_ns);
    for (int32_t i = 0; i < concurrency; i++)
        send_request(&point, &point.calls[i]);
    run_until(&point, s->seconds == 0 ? 0 : start.time_ns + s->seconds * CLOCK_NS_PER_S);
    read_counts(bench, &end);
    point.is_over = true;
    cancel_all(&point);
    run_until(&point, 0);
    print_point(&point, &start, &end);
    free(point.calls);
    free(point.first_ms);
    free(point.latency_ms);
}

int main(int argc, char **argv) {
    struct engine_settings s;
    engine_settings_read(argc, argv, &s);
    struct engine_bench bench = {.settings = &s, .random = (uint64_t)s.seed};
    open_engine(&bench, argv);
    for (int w = 0; w < s.num_workloads; w++)
        for (int i = 0; i < s.num_concurrencies; i++)
            measure(&bench, &s.workloads[w], s.concurrencies[i]);
    close_engine(&bench);
    return 0;
}
