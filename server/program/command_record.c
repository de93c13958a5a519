#include "server/program/command_record.h"

#include "config/base/clock.h"
#include "config/base/numbers.h"
#include "config/build_hash.h"
#include "kernels/dtype.h"
#include "kernels/kv_type.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What an executor and a drafter are made from, but for what the header says in numbers. */
static const char *const names[] = {"model",
                                    "device",
                                    "dtype",
                                    "quantization",
                                    "kv-cache-dtype",
                                    "batch-invariant",
                                    "fp8-activations",
                                    "fast-sums",
                                    "threads",
                                    "cpu-isa",
                                    "gpu-isa",
                                    "block-size",
                                    "max-logprobs",
                                    "device-timeout",
                                    "tensor-parallel-size",
                                    "max-model-len",
                                    "enforce-eager",
                                    "speculative-config",
                                    "pipeline-parallel-size"};

#define NUM_NAMES (sizeof(names) / sizeof(names[0]))

static int print_options(const struct options *options, char *out, size_t capacity,
                         struct error *err) {
    size_t used = 0;
    for (size_t i = 0; i < NUM_NAMES; i++) {
        char value[8192];
        if (strcmp(names[i], "speculative-config") == 0 && options->speculative_config == NULL)
            continue;
        bool fits = options_print(options, names[i], value, sizeof(value));
        int length = fits ? snprintf(out + used, capacity - used, "--%s=%s\n", names[i], value) : 0;
        if (!fits || length >= (int)(capacity - used))
            return error_set(err, ERROR_CONFIG, "record: the option %s is too long", names[i]);
        if (memchr(out + used, '\n', (size_t)length - 1) != NULL)
            return error_set(err, ERROR_CONFIG,
                             "record: the option %s has several lines; write it in one", names[i]);
        used += (size_t)length;
    }
    return 0;
}

int command_record_describe(const struct options *options, const struct executor_info *info,
                            const struct engine_config *engine, struct record_header *out,
                            struct error *err) {
    *out = (struct record_header){
        .num_ranks = info->num_ranks,
        .num_stages = info->num_stages,
        .batch_invariant = info->batch_invariant,
        .kv_bytes = (int64_t)info->memory.kv_bytes,
        .swap_bytes = (int64_t)info->memory.swap_bytes,
        .limits = info->limits,
        .core = engine->core,
    };
    memcpy(out->model_digest, info->model_digest, sizeof(out->model_digest));
    memcpy(out->draft_digest, info->draft_digest, sizeof(out->draft_digest));
    snprintf(out->build, sizeof(out->build), "%s", build_hash());
    snprintf(out->device, sizeof(out->device), "%s", info->device);
    snprintf(out->numerics, sizeof(out->numerics), "%s", info->numerics);
    snprintf(out->kv_type, sizeof(out->kv_type), "%s", kv_type_name(info->kv_type));
    snprintf(out->activation_dtype, sizeof(out->activation_dtype), "%s",
             dtype_name(info->activation_dtype));
    return print_options(options, out->options, sizeof(out->options), err);
}

/* Cuts the copy of the options into lines. Returns how many; -1: there are too many. */
static int split_lines(char *text, char **lines, int capacity) {
    int count = 0;
    for (char *line = text; *line != '\0' && count < capacity;) {
        size_t length = strcspn(line, "\n");
        bool has_end = line[length] == '\n';
        line[length] = '\0';
        lines[count++] = line;
        line += length + has_end;
        if (*line != '\0' && count == capacity)
            return -1;
    }
    return count;
}

int command_record_options(const struct record_header *header, int argc, char *const *argv,
                           struct options *out, struct error *err) {
    static char *const no_environment[] = {NULL};
    char *lines = strdup(header->options);
    char **words = calloc(NUM_NAMES + (size_t)argc, sizeof(*words));
    int status = -1;
    if (lines == NULL || words == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for %d options", argc);
    } else {
        int count = split_lines(lines, words, (int)NUM_NAMES);
        if (count < 0)
            error_set(err, ERROR_CONFIG, "the recording has too many options");
        for (int i = 0; count >= 0 && i < argc; i++)
            words[count + i] = argv[i];
        if (count >= 0)
            status = options_load(count + argc, words, no_environment, out, err);
    }
    free(words);
    free(lines);
    return status;
}
