#include "scripts/bench/engine_settings.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t read_number(const char *name, const char **text, int64_t least, int64_t most) {
    char *end;
    long long value = strtoll(*text, &end, 10);
    if (end == *text || value < least || value > most)
        errx(1, "%s: %s (allowed: %lld to %lld)", name, *text, (long long)least, (long long)most);
    *text = end;
    return value;
}

static void read_concurrency(struct engine_settings *s, const char *text) {
    for (s->num_concurrencies = 0; s->num_concurrencies < ENGINE_SETTINGS_MAX_LIST; text++) {
        s->concurrencies[s->num_concurrencies++] =
            (int32_t)read_number("concurrency", &text, 1, ENGINE_SETTINGS_MAX_CONCURRENCY);
        if (*text != ',')
            break;
    }
    if (*text != '\0')
        errx(1, "concurrency: more than %d numbers, or not a number at %s",
             ENGINE_SETTINGS_MAX_LIST, text);
}

static void read_workload(struct engine_workload *out, const char *text) {
    snprintf(out->name, sizeof(out->name), "%s", text);
    out->tokens_in = out->tokens_out = 0;
    out->most_tokens = 1024;
    if (strcmp(text, "sharegpt") == 0)
        return;
    if (strncmp(text, "sharegpt-", 9) == 0) {
        text += 9;
        out->most_tokens =
            (int32_t)read_number("workloads", &text, ENGINE_SETTINGS_LEAST_TOKENS, 1 << 20);
    } else {
        out->tokens_in = (int32_t)read_number("workloads", &text, 1, 1 << 20);
        if (*text++ != '/')
            errx(1, "workloads: %s (must be IN/OUT, sharegpt or sharegpt-N)", out->name);
        out->tokens_out = (int32_t)read_number("workloads", &text, 1, 1 << 20);
    }
    if (*text != '\0')
        errx(1, "workloads: not a number at %s", text);
}

static void read_workloads(struct engine_settings *s, const char *text) {
    for (s->num_workloads = 0; s->num_workloads < ENGINE_SETTINGS_MAX_LIST; text++) {
        char name[ENGINE_SETTINGS_MAX_NAME];
        size_t length = strcspn(text, ",");
        if (length >= sizeof(name))
            errx(1, "workloads: %s is too long", text);
        memcpy(name, text, length);
        name[length] = '\0';
        read_workload(&s->workloads[s->num_workloads++], name);
        text += length;
        if (*text != ',')
            break;
    }
    if (*text != '\0')
        errx(1, "workloads: more than %d", ENGINE_SETTINGS_MAX_LIST);
}

static void read_setting(struct engine_settings *s, const char *name, const char *text) {
    const struct {
        const char *name;
        int64_t *value, least, most;
    } numbers[] = {
        {"requests", &s->requests, 1, 1 << 20},
        {"seconds", &s->seconds, 0, 3600},
        {"temperature", &s->temperature, 0, 2000},
        {"top-p", &s->top_p, 1, 1000},
        {"seed", &s->seed, 0, INT32_MAX},
        {"max-model-len", &s->max_model_len, 0, INT32_MAX},
        {"max-num-seqs", &s->max_num_seqs, 0, 1 << 16},
        {"max-num-batched-tokens", &s->max_num_batched_tokens, 0, 1 << 20},
        {"kv-mib", &s->kv_mib, 0, 1 << 24},
        {"batch-invariant", &s->batch_invariant, 0, 1},
        {"async-scheduling", &s->async_scheduling, 0, 1},
    };
    if (strcmp(name, "concurrency") == 0) {
        read_concurrency(s, text);
        return;
    }
    if (strcmp(name, "workloads") == 0) {
        read_workloads(s, text);
        return;
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].value = read_number(name, &text, numbers[i].least, numbers[i].most);
            if (*text != '\0')
                errx(1, "%s: not a number at %s", name, text);
            return;
        }
    errx(1, "unknown option %s", name);
}

void engine_settings_read(int argc, char **argv, struct engine_settings *out) {
    *out = (struct engine_settings){.num_concurrencies = 4,
                                    .concurrencies = {1, 8, 64, 256},
                                    .requests = 2,
                                    .seconds = 20,
                                    .top_p = 1000,
                                    .async_scheduling = 1};
    read_workloads(out, "100/128");
    if (argc < 4 || argc % 2 != 0)
        errx(1, "usage: %s DEVICE auto|bf16|f16 MODEL [OPTION VALUE]...", argv[0]);
    for (int i = 4; i + 1 < argc; i += 2)
        read_setting(out, argv[i], argv[i + 1]);
}
