#include "scripts/bench/bench_model_settings.h"

#include "models/lora/lora_adapter.h"
#include "tests/kernels/device_bench.h"

#include <stdlib.h>
#include <string.h>

static int64_t read_number(const char *name, const char **text, int64_t most) {
    char *end;
    long long value = strtoll(*text, &end, 10);
    if (end == *text || value < 0 || value > most)
        device_bench_fail("%s: %s (allowed: 0 to %lld)", name, *text, (long long)most);
    *text = end;
    return value;
}

static void read_list(const char *name, const char *text, struct bench_model_list *out) {
    for (out->num_values = 0; out->num_values < BENCH_MODEL_MAX_LIST; text++) {
        out->values[out->num_values++] = (int32_t)read_number(name, &text, 1 << 20);
        if (out->values[out->num_values - 1] == 0)
            device_bench_fail("%s: 0 (allowed: 1 to %d)", name, 1 << 20);
        if (*text != ',')
            break;
    }
    if (*text != '\0')
        device_bench_fail("%s: more than %d numbers, or not a number at %s", name,
                          BENCH_MODEL_MAX_LIST, text);
}

static void read_samplings(const char *text, struct bench_model_settings *out) {
    for (out->num_samplings = 0;; text++) {
        size_t length = strcspn(text, ",");
        enum bench_model_sampling i = 0;
        while (i < NUM_SAMPLINGS && (strlen(bench_model_sampling_names[i]) != length ||
                                     strncmp(bench_model_sampling_names[i], text, length) != 0))
            i++;
        if (i == NUM_SAMPLINGS || out->num_samplings == NUM_SAMPLINGS)
            device_bench_fail("sampling: %s (allowed: a list of greedy, temperature and top-p)",
                              text);
        out->samplings[out->num_samplings++] = i;
        text += length;
        if (*text == '\0')
            return;
    }
}

static void read_setting(struct bench_model_settings *s, const char *name, const char *text) {
    const struct {
        const char *name;
        struct bench_model_list *list;
    } lists[] = {{"batches", &s->batches},
                 {"contexts", &s->contexts},
                 {"prompts", &s->prompts},
                 {"mixed", &s->mixed}};
    const struct {
        const char *name;
        int64_t *value, most;
    } numbers[] = {{"mixed-seqs", &s->mixed_seqs, 1 << 20},
                   {"mixed-context", &s->mixed_context, 1 << 20},
                   {"pool-mib", &s->pool_mib, 1 << 24},
                   {"batch-us", &s->batch_us, 1 << 30},
                   {"batch-invariant", &s->batch_invariant, 1},
                   {"replay", &s->replay, BENCH_MODEL_BOTH},
                   {"adapters", &s->adapters, LORA_MAX_SLOTS},
                   {"adapter-rank", &s->adapter_rank, LORA_MAX_RANK}};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        if (strcmp(name, lists[i].name) == 0) {
            read_list(name, text, lists[i].list);
            return;
        }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].value = read_number(name, &text, numbers[i].most);
            return;
        }
    if (strcmp(name, "kv-type") == 0)
        s->kv_type = text;
    else if (strcmp(name, "isa") == 0)
        s->isa = text;
    else if (strcmp(name, "sampling") == 0)
        read_samplings(text, s);
    else
        device_bench_fail("unknown option %s", name);
}

void bench_model_settings_read(struct bench_model_settings *s, int argc, char **argv) {
    *s = (struct bench_model_settings){.pool_mib = 64,
                                       .batch_us = 100000,
                                       .mixed_seqs = 63,
                                       .mixed_context = 1024,
                                       .adapter_rank = 16};
    s->samplings[s->num_samplings++] = SAMPLING_GREEDY;
    if (argc < 4 || argc % 2 != 0)
        device_bench_fail("usage: %s DEVICE bf16|f16 MODEL [OPTION VALUE]...", argv[0]);
    for (int i = 4; i + 1 < argc; i += 2)
        read_setting(s, argv[i], argv[i + 1]);
    if (s->adapter_rank == 0 || s->adapter_rank % LORA_RANK_STEP != 0)
        device_bench_fail("adapter-rank: %lld (allowed: multiples of %d to %d)",
                          (long long)s->adapter_rank, LORA_RANK_STEP, LORA_MAX_RANK);
    if (s->mixed_seqs == 0 || s->mixed_context == 0)
        device_bench_fail("mixed-seqs, mixed-context: 0");
    if (s->mixed.num_values == 0)
        s->mixed_seqs = s->mixed_context = 0;
}

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

static int32_t largest(const struct bench_model_list *list) {
    int32_t most = 0;
    for (int i = 0; i < list->num_values; i++)
        most = larger(list->values[i], most);
    return most;
}

struct serving_limits bench_model_settings_limits(const struct bench_model_settings *s,
                                                  int32_t vocab_size) {
    int32_t mixed_seqs = (int32_t)s->mixed_seqs, chunk = largest(&s->mixed);
    int32_t seqs = larger(1, larger(largest(&s->batches), mixed_seqs + (chunk > 0)));
    int32_t tokens = larger(seqs, larger(largest(&s->prompts), mixed_seqs + chunk));
    int32_t length = larger(larger(largest(&s->contexts), largest(&s->prompts)),
                            larger((int32_t)s->mixed_context, chunk));
    return (struct serving_limits){.max_num_seqs = seqs,
                                   .max_num_batched_tokens = tokens,
                                   .max_logit_rows = seqs,
                                   .max_model_len = length + BENCH_MODEL_BLOCK_SIZE,
                                   .block_size = BENCH_MODEL_BLOCK_SIZE,
                                   .vocab_size = vocab_size};
}
