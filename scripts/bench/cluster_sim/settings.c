#include "scripts/bench/cluster_sim/settings.h"

#include "config/base/clock.h"

#include <err.h>
#include <stdlib.h>
#include <string.h>

/* --- Numbers --- */

enum number {
    REPLICAS,
    REQUESTS,
    SEED,
    RATE,
    TURNS,
    THINK_S,
    SYSTEM_PROMPTS,
    SYSTEM_TOKENS,
    PREFIX_CACHING,
    BLOCKS,
    TTFT_MS,
    TPOT_MS,
    WARMUP_S,
    WINDOW_S,
    KILL_S,
    DRAIN_S,
    RETURN_S,
    RETRY_S,
    NUM_NUMBERS
};

struct number_option {
    const char *name;
    double least, most, value; /* at first its default */
};

static const struct number_option number_options[NUM_NUMBERS] = {
    [REPLICAS] = {"replicas", 1, CLUSTER_MAX_REPLICAS, 4},
    [REQUESTS] = {"requests", 1, 1e8, 10000},
    [SEED] = {"seed", 0, 1e15, 1},
    [RATE] = {"rate", 1e-3, 1e4, 1},
    [TURNS] = {"turns", 1, 100, 3.5},
    [THINK_S] = {"think-s", 0, 1e5, 10},
    [SYSTEM_PROMPTS] = {"system-prompts", 0, 100000, 20},
    [SYSTEM_TOKENS] = {"system-tokens", 1, 2048, 500},
    [PREFIX_CACHING] = {"prefix-caching", 0, 1, 1},
    [BLOCKS] = {"blocks", 0, 1e8, 0},
    [TTFT_MS] = {"ttft-ms", 0, 1e9, 1000},
    [TPOT_MS] = {"tpot-ms", 0, 1e9, 50},
    [WARMUP_S] = {"warmup-s", 0, 1e6, 0},
    [WINDOW_S] = {"window-s", 0, 1e6, 0},
    [KILL_S] = {"kill-s", -1, 1e6, -1},
    [DRAIN_S] = {"drain-s", -1, 1e6, -1},
    [RETURN_S] = {"return-s", -1, 1e6, -1},
    [RETRY_S] = {"retry-s", -1, 1e6, 1},
};

static double read_number(const struct number_option *option, const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= option->least && value <= option->most))
        errx(1, "%s: %s (allowed: %g to %g)", option->name, text, option->least, option->most);
    return value;
}

static bool set_number(struct number_option *options, const char *name, const char *text) {
    for (int i = 0; i < NUM_NUMBERS; i++) {
        if (strcmp(options[i].name, name) != 0)
            continue;
        options[i].value = read_number(&options[i], text);
        return true;
    }
    return false;
}

/* --- Names --- */

static enum router_kind find_router(const char *name) {
    for (int i = 0; i < NUM_ROUTERS; i++)
        if (strcmp(router_name((enum router_kind)i), name) == 0)
            return (enum router_kind)i;
    errx(1, "router: %s (known: round-robin, least, affinity, prefix)", name);
}

static struct simulated_device find_device(const char *name) {
    const struct simulated_device *device = simulated_device_find(name);
    if (device == NULL)
        errx(1, "device: %s (known: %s)", name, simulated_device_names());
    return *device;
}

/* --- All of them --- */

/* -1 stays -1: never. */
static int64_t ns_of(double seconds) {
    return seconds < 0 ? -1 : (int64_t)(seconds * (double)CLOCK_NS_PER_S);
}

static struct block_key_secret fixed_secret(void) {
    struct block_key_secret secret;
    for (int i = 0; i < BLOCK_KEY_SECRET_BYTES; i++)
        secret.bytes[i] = (unsigned char)(37 * i + i * i);
    return secret;
}

static struct trace_settings trace_of(const struct number_option *n, int32_t max_model_len) {
    return (struct trace_settings){
        .seed = (uint64_t)n[SEED].value,
        .conversations_per_s = n[RATE].value * n[REPLICAS].value / n[TURNS].value,
        .mean_turns = n[TURNS].value,
        .mean_think_s = n[THINK_S].value,
        .num_system_prompts = (int32_t)n[SYSTEM_PROMPTS].value,
        .mean_system_tokens = (int32_t)n[SYSTEM_TOKENS].value,
        .max_model_len = max_model_len,
    };
}

static void check(const struct number_option *n) {
    bool is_fault = n[KILL_S].value >= 0 || n[DRAIN_S].value >= 0;
    if (n[KILL_S].value >= 0 && n[DRAIN_S].value >= 0)
        errx(1, "kill-s, drain-s: one of them only");
    if (n[RETURN_S].value >= 0 && (!is_fault || n[RETURN_S].value <= n[KILL_S].value ||
                                   n[RETURN_S].value <= n[DRAIN_S].value))
        errx(1, "return-s: must come after kill-s or drain-s");
}

static void fill_in(struct cluster_settings *out, const struct number_option *n) {
    struct cluster_config *cluster = &out->cluster;
    if (n[BLOCKS].value > 0)
        out->device.limits.num_blocks = (int32_t)n[BLOCKS].value;
    if (out->device.limits.num_blocks < serving_limits_max_blocks(&out->device.limits))
        errx(1, "blocks: must be at least %d", serving_limits_max_blocks(&out->device.limits));
    cluster->num_replicas = (int32_t)n[REPLICAS].value;
    cluster->num_requests = (int64_t)n[REQUESTS].value;
    cluster->replica = (struct replica_config){.device = &out->device,
                                               .prefix_caching = n[PREFIX_CACHING].value != 0,
                                               .secret = fixed_secret()};
    cluster->trace = trace_of(n, out->device.limits.max_model_len);
    cluster->faults = (struct cluster_faults){.kill_ns = ns_of(n[KILL_S].value),
                                              .drain_ns = ns_of(n[DRAIN_S].value),
                                              .return_ns = ns_of(n[RETURN_S].value),
                                              .retry_ns = ns_of(n[RETRY_S].value)};
    out->limits = (struct result_limits){n[TTFT_MS].value / 1e3, n[TPOT_MS].value / 1e3};
    out->warmup_ns = ns_of(n[WARMUP_S].value);
    out->window_ns = ns_of(n[WINDOW_S].value);
}

void cluster_settings_read(int argc, char **argv, struct cluster_settings *out) {
    struct number_option numbers[NUM_NUMBERS];
    memcpy(numbers, number_options, sizeof(numbers));
    *out =
        (struct cluster_settings){.device = find_device("h100-8b"), .cluster.router = ROUTER_LEAST};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            errx(1, "%s: needs a value", argv[i]);
        if (strcmp(argv[i], "router") == 0)
            out->cluster.router = find_router(argv[i + 1]);
        else if (strcmp(argv[i], "device") == 0)
            out->device = find_device(argv[i + 1]);
        else if (!set_number(numbers, argv[i], argv[i + 1]))
            errx(1, "%s: no such option", argv[i]);
    }
    check(numbers);
    fill_in(out, numbers);
}
