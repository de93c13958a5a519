/* test_real_model LOGPROBS TEXT BACKEND NUM_TOKENS ERROR [NAME]: the model that the environment
 * variable QUIRE_TEST_MODEL names, or file NAME next to it, on the first NUM_TOKENS tokens of a
 * text, against Transformers in float32: the same ids, a mean |difference| of the log-probabilities
 * below ERROR nats, the perplexity within 1 %. Exit status 77 when the variable is not set or there
 * is no such file. */
#include "config/base/check.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/golden/golden_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct expected {
    int32_t num_tokens;
    int32_t tokens[GOLDEN_MAX_TOKENS];
    double logprobs[GOLDEN_MAX_TOKENS]; /* of each token after those before it; the first: 0 */
};

static int read_expected(const char *path, int32_t num_tokens, struct expected *out) {
    FILE *stream = fopen(path, "r");
    if (stream == NULL)
        return -1;
    out->num_tokens = 0;
    while (out->num_tokens < num_tokens && fscanf(stream, "%d %lf", &out->tokens[out->num_tokens],
                                                  &out->logprobs[out->num_tokens]) == 2)
        out->num_tokens++;
    fclose(stream);
    return out->num_tokens == num_tokens ? 0 : -1;
}

static double logprob(const float *logits, int32_t vocab_size, int32_t token) {
    double largest = -INFINITY, sum = 0.0;
    for (int32_t i = 0; i < vocab_size; i++)
        largest = fmax(largest, (double)logits[i]);
    for (int32_t i = 0; i < vocab_size; i++)
        sum += exp((double)logits[i] - largest);
    return (double)logits[token] - largest - log(sum);
}

/* The text must start with the expected tokens. */
static int check_tokens(const struct model *model, const char *path,
                        const struct expected *expected) {
    static char text[1 << 20];
    int32_t tokens[GOLDEN_MAX_TOKENS];
    FILE *stream = fopen(path, "rb");
    if (stream == NULL)
        return -1;
    size_t length = fread(text, 1, sizeof(text), stream);
    fclose(stream);
    struct tokenizer *tokenizer;
    if (tokenizer_open(model, &tokenizer, NULL) != 0)
        return -1;
    int64_t count =
        tokenizer_encode(tokenizer, text, length, TOKENIZER_ADD_SPECIAL, tokens, GOLDEN_MAX_TOKENS);
    tokenizer_close(tokenizer);
    if (count < expected->num_tokens)
        return -1;
    return memcmp(tokens, expected->tokens, (size_t)expected->num_tokens * sizeof(int32_t));
}

static int compare(struct golden_run *run, const struct expected *expected, double allowed) {
    int32_t vocab_size = run->model->config.vocab_size, count = expected->num_tokens;
    struct golden_sequence sequence = {0};
    float *logits = malloc((size_t)count * (size_t)vocab_size * sizeof(float));
    double difference = 0.0, ours = 0.0, theirs = 0.0;
    CHECK(logits != NULL && count > 1);
    for (int32_t i = 0; i < GOLDEN_NUM_BLOCKS; i++)
        sequence.block_table[i] = GOLDEN_NUM_BLOCKS - 1 - i;
    golden_run_step(run, &sequence, expected->tokens, count, logits);
    for (int32_t i = 1; i < count; i++) {
        const float *row = logits + (size_t)(i - 1) * (size_t)vocab_size;
        double value = logprob(row, vocab_size, expected->tokens[i]);
        difference += fabs(value - expected->logprobs[i]) / (count - 1);
        ours -= value / (count - 1);
        theirs -= expected->logprobs[i] / (count - 1);
    }
    free(logits);
    printf("%s: %d tokens, perplexity %.4f, Transformers %.4f, mean difference %.5f nats\n",
           run->backend->description, count, exp(ours), exp(theirs), difference);
    return difference <= allowed && fabs(exp(ours - theirs) - 1.0) < 0.01 ? 0 : -1;
}

static int run_test(const char *model_path, char **argv) {
    static struct expected expected;
    struct golden_run run;
    const struct golden_device device = {.backend = argv[3]};
    struct error err = {0};
    if (read_expected(argv[1], atoi(argv[4]), &expected) != 0) {
        fprintf(stderr, "%s: not %s lines of token and log-probability\n", argv[1], argv[4]);
        return 1;
    }
    if (golden_run_init(&run, model_path, &device, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    int status = compare(&run, &expected, atof(argv[5]));
    if (check_tokens(run.model, argv[2], &expected) != 0) {
        fprintf(stderr, "the text does not encode to the expected tokens\n");
        status = -1;
    }
    golden_run_finish(&run);
    return status == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    const char *named = getenv("QUIRE_TEST_MODEL");
    char path[4096];
    if (argc < 6 || argc > 7 || atoi(argv[4]) < 2 || atoi(argv[4]) > GOLDEN_MAX_TOKENS) {
        fprintf(stderr, "usage: %s LOGPROBS TEXT BACKEND NUM_TOKENS ERROR [NAME]\n", argv[0]);
        return 2;
    }
    if (named == NULL || named[0] == '\0') {
        printf("skipped: QUIRE_TEST_MODEL is not set\n");
        return 77;
    }
    if (argc == 6)
        return run_test(named, argv);
    const char *slash = strrchr(named, '/');
    snprintf(path, sizeof(path), "%.*s%s", slash == NULL ? 0 : (int)(slash + 1 - named), named,
             argv[6]);
    if (access(path, R_OK) != 0) {
        printf("skipped: %s is missing\n", path);
        return 77;
    }
    return run_test(path, argv);
}
