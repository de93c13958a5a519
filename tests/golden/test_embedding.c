/* test_embedding FILE MODEL BACKEND DTYPE TOLERANCE [whole]
 *
 * The pooled hidden states of a prompt, as FILE of scripts/golden/make_embeddings.py holds them,
 * within TOLERANCE (|ours - theirs| / |theirs|); and the same bits however the prompt is cut into
 * steps, and whoever shares them, unless it is to be fed whole only, which is faster. MODEL is a
 * GGUF file or a Hugging Face folder; "env" takes the file that the environment variable
 * QUIRE_TEST_MODEL names. DTYPE is for devices, "f32" for the CPU. Exit status 77 when there is no
 * such model, or no such device. */
#include "config/base/check.h"
#include "tests/golden/golden_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct expected {
    int32_t num_tokens, width;
    int32_t tokens[GOLDEN_MAX_TOKENS];
    float mean[GOLDEN_MAX_HIDDEN], last[GOLDEN_MAX_HIDDEN];
};

struct pooled {
    float mean[GOLDEN_MAX_HIDDEN], last[GOLDEN_MAX_HIDDEN];
};

static bool read_array(FILE *stream, void *out, size_t count) {
    return fread(out, 4, count, stream) == count;
}

static bool read_expected(const char *path, struct expected *out) {
    FILE *stream = fopen(path, "rb");
    if (stream == NULL)
        return false;
    bool ok = read_array(stream, &out->num_tokens, 1) && read_array(stream, &out->width, 1) &&
              out->num_tokens > 0 && out->num_tokens <= GOLDEN_MAX_TOKENS / 2 && out->width > 0 &&
              out->width <= GOLDEN_MAX_HIDDEN &&
              read_array(stream, out->tokens, (size_t)out->num_tokens) &&
              read_array(stream, out->mean, (size_t)out->width) &&
              read_array(stream, out->last, (size_t)out->width);
    fclose(stream);
    return ok;
}

/* In steps of `chunk` tokens; in company, another sequence takes part in each of them. */
static void pool_prompt(struct golden_run *run, const struct expected *expected, int32_t chunk,
                        bool in_company, struct pooled *out) {
    struct golden_sequence sequence = {0}, company;
    for (int32_t i = 0; i < GOLDEN_NUM_BLOCKS / 2; i++)
        sequence.block_table[i] = GOLDEN_NUM_BLOCKS - 1 - 2 * i;
    memset(out, 0, sizeof(*out));
    for (int32_t at = 0; at < expected->num_tokens; at += chunk) {
        int32_t left = expected->num_tokens - at, count = left < chunk ? left : chunk;
        company = (struct golden_sequence){0};
        for (int32_t i = 0; i < GOLDEN_NUM_BLOCKS / 2; i++)
            company.block_table[i] = 2 * i;
        golden_run_pool(run, &sequence, expected->tokens + at, count, in_company ? &company : NULL,
                        5, out->mean, out->last);
    }
    for (int32_t i = 0; i < expected->width; i++)
        out->mean[i] /= (float)expected->num_tokens;
}

static double relative_error(const float *ours, const float *theirs, int32_t count) {
    double difference = 0.0, norm = 0.0;
    for (int32_t i = 0; i < count; i++) {
        difference += pow((double)ours[i] - (double)theirs[i], 2);
        norm += pow((double)theirs[i], 2);
    }
    return sqrt(difference / norm);
}

static int compare(struct golden_run *run, const struct expected *expected, double tolerance,
                   bool whole_only) {
    static struct pooled whole, other;
    static const int32_t chunks[] = {1, 7, 16, GOLDEN_MAX_TOKENS};
    CHECK(run->model->config.hidden_size == expected->width);
    pool_prompt(run, expected, expected->num_tokens, false, &whole);
    double mean = relative_error(whole.mean, expected->mean, expected->width);
    double last = relative_error(whole.last, expected->last, expected->width);
    printf("%s: relative error of the mean %.2e, of the last state %.2e\n",
           run->backend->description, mean, last);
    if (!(mean <= tolerance && last <= tolerance))
        return 1;
    if (whole_only)
        return 0;
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++)
        for (int in_company = 0; in_company < 2; in_company++) {
            pool_prompt(run, expected, chunks[i], in_company == 1, &other);
            if (memcmp(&whole, &other, sizeof(whole)) == 0)
                continue;
            printf("other bits in steps of %d tokens%s\n", chunks[i],
                   in_company == 1 ? " with company" : "");
            return 1;
        }
    return 0;
}

int main(int argc, char **argv) {
    static struct expected expected;
    struct golden_run run;
    struct error err = {0};
    if (argc != 6 && argc != 7) {
        fprintf(stderr, "usage: %s FILE MODEL|env BACKEND f32|bf16|f16 TOLERANCE [whole]\n",
                argv[0]);
        return 2;
    }
    const char *model = strcmp(argv[2], "env") == 0 ? getenv("QUIRE_TEST_MODEL") : argv[2];
    if (model == NULL || model[0] == '\0')
        return 77;
    const struct golden_device device = {.backend = argv[3],
                                         .dtype = strcmp(argv[4], "f32") == 0   ? DTYPE_F32
                                                  : strcmp(argv[4], "f16") == 0 ? DTYPE_F16
                                                                                : DTYPE_BF16,
                                         .batch_invariant = true};
    if (!read_expected(argv[1], &expected)) {
        fprintf(stderr, "cannot read %s\n", argv[1]);
        return 1;
    }
    if (golden_run_init(&run, model, &device, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.code == ERROR_DEVICE ? 77 : 1;
    }
    int status = compare(&run, &expected, strtod(argv[5], NULL), argc == 7);
    golden_run_finish(&run);
    return status;
}
