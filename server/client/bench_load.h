/* A load of streamed completions on a server: num_streams streams at a time, each of which sends
 * its next request when the last one was answered (a closed loop), on one thread. */
#ifndef QUIRE_SERVER_CLIENT_BENCH_LOAD_H
#define QUIRE_SERVER_CLIENT_BENCH_LOAD_H

#include "config/base/error.h"
#include "server/net/http_client.h"

#include <stdbool.h>
#include <stdint.h>

#define BENCH_MAX_STREAMS 1024
#define BENCH_MAX_CAUSES 8
#define BENCH_CAUSE_BYTES 200

struct bench_load {
    const struct http_url *url; /* its path comes before /v1/... */
    const char *key_field;      /* "" none */
    const char *model;
    int num_streams;         /* 1 to BENCH_MAX_STREAMS */
    int requests_per_stream; /* 0: as many as fit into the seconds */
    double seconds;          /* requests in flight after that are cut off; 0: all are answered */
    int input_tokens;  /* approximate: each word of a prompt is one token in most vocabularies */
    int shared_tokens; /* of these, at the beginning of every prompt, the same in all */
    int output_tokens;
    double temperature;
    uint64_t seed; /* of the prompts, which all differ */
    bool (*is_interrupted)(void);
};

/* Seconds, unordered. */
struct bench_samples {
    float *values;
    int64_t count, capacity;
};

struct bench_figures {
    double seconds;
    double client_busy; /* share of a core that this program used */
    int64_t num_answered, num_failed, num_cut;
    int64_t prompt_tokens,
        output_tokens;        /* as counted by the server; for cut-off requests, the events */
    int64_t num_other_length; /* answers without output_tokens tokens */
    struct bench_samples first_token, between_tokens, whole;
    int num_causes; /* of failures; those beyond BENCH_MAX_CAUSES are counted with the last */
    struct {
        char text[BENCH_CAUSE_BYTES];
        int64_t count;
    } causes[BENCH_MAX_CAUSES];
};

/* Runs the load. Returns -1 (ERROR_MEMORY) with nothing to finish. A failed request is not an error
 * here. */
int bench_load_run(const struct bench_load *load, struct bench_figures *out, struct error *err);
void bench_figures_finish(struct bench_figures *figures);

/* Returns the quantile by nearest rank; sorts the samples. 0 without samples. */
double bench_samples_quantile(struct bench_samples *samples, double share);

#endif
