/* A load of streamed completions on a server: so many streams at a time, each of which sends its
 * next request when the last was answered (a closed loop), on one thread. */
#ifndef QUIRE_SERVER_BENCH_LOAD_H
#define QUIRE_SERVER_BENCH_LOAD_H

#include "config/base/error.h"
#include "server/net/http_client.h"

#include <stdbool.h>
#include <stdint.h>

#define BENCH_MAX_STREAMS 1024
#define BENCH_MAX_CAUSES 8
#define BENCH_CAUSE_BYTES 200

struct bench_load {
    const struct http_url *url; /* its path is before /v1/... */
    const char *key_field;      /* "" none */
    const char *model;
    int num_streams;         /* 1 to BENCH_MAX_STREAMS */
    int requests_per_stream; /* 0: as many as the seconds have room for */
    double seconds;          /* what is under way then is cut short; 0: all is answered */
    int input_tokens;        /* about: each word of a prompt is a token of most vocabularies */
    int shared_tokens;       /* of them at the begin of every prompt, the same in all */
    int output_tokens;
    double temperature;
    uint64_t seed; /* of the prompts, no two of which are alike */
    bool (*is_interrupted)(void);
};

/* Seconds, in no order. */
struct bench_samples {
    float *values;
    int64_t count, capacity;
};

struct bench_figures {
    double seconds;
    double client_busy; /* share of a core that this program used */
    int64_t num_answered, num_failed, num_cut;
    int64_t prompt_tokens, output_tokens; /* as the server counts them; of cut ones the events */
    int64_t num_other_length;             /* answers without output_tokens tokens */
    struct bench_samples first_token, between_tokens, whole;
    int num_causes; /* of failures; more than BENCH_MAX_CAUSES are counted with the last */
    struct {
        char text[BENCH_CAUSE_BYTES];
        int64_t count;
    } causes[BENCH_MAX_CAUSES];
};

/* Runs it. -1 (ERROR_MEMORY) with nothing to finish. A request that fails is no error here. */
int bench_load_run(const struct bench_load *load, struct bench_figures *out, struct error *err);
void bench_figures_finish(struct bench_figures *figures);

/* The nearest rank; sorts the samples. 0 without any. */
double bench_samples_quantile(struct bench_samples *samples, double share);

#endif
