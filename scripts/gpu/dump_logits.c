/* dump_logits DEVICE bf16|f16 MODEL TOKENS STEP OUT [batch-invariant]: the logits after every token
 * of a sequence, for comparison by a script. TOKENS holds 32-bit token ids; OUT becomes floats
 * [tokens][vocab]. The first STEP tokens go in one step, the others one by one, so that both ways
 * through the attention are taken. On "cpu" and "cpu-ref" the type is not used. */
#include "tests/golden/golden_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, const char *detail) {
    fprintf(stderr, "%s: %s\n", what, detail);
    return 1;
}

static int32_t read_tokens(const char *path, int32_t *tokens) {
    FILE *stream = fopen(path, "rb");
    if (stream == NULL)
        return 0;
    size_t count = fread(tokens, sizeof(int32_t), GOLDEN_MAX_TOKENS + 1, stream);
    fclose(stream);
    return (int32_t)count;
}

static int write_logits(const char *path, const float *logits, size_t count) {
    FILE *stream = fopen(path, "wb");
    if (stream == NULL)
        return fail(path, "cannot be written");
    size_t written = fwrite(logits, sizeof(float), count, stream);
    if (fclose(stream) != 0 || written != count)
        return fail(path, "was not written whole");
    return 0;
}

static bool are_tokens(const int32_t *tokens, int32_t count, int32_t vocab_size) {
    for (int32_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab_size)
            return false;
    return count > 0 && count <= GOLDEN_MAX_TOKENS;
}

static int dump(struct golden_run *run, const int32_t *tokens, int32_t count, int32_t first,
                const char *path) {
    size_t vocab_size = (size_t)run->model->config.vocab_size;
    float *logits = malloc((size_t)count * vocab_size * sizeof(float));
    struct golden_sequence sequence = {0};
    if (logits == NULL)
        return fail("logits", "no memory");
    for (int32_t i = 0; i < GOLDEN_NUM_BLOCKS; i++)
        sequence.block_table[i] = (i * 37 + 11) % GOLDEN_NUM_BLOCKS;
    for (int32_t at = 0; at < count;) {
        int32_t step = at == 0 ? first : 1;
        golden_run_step(run, &sequence, tokens + at, step, logits + (size_t)at * vocab_size);
        at += step;
    }
    int status = write_logits(path, logits, (size_t)count * vocab_size);
    free(logits);
    return status;
}

int main(int argc, char **argv) {
    static int32_t tokens[GOLDEN_MAX_TOKENS + 1];
    if (argc < 7 || argc > 8 || (argc == 8 && strcmp(argv[7], "batch-invariant") != 0))
        return fail(argv[0], "DEVICE bf16|f16 MODEL TOKENS STEP OUT [batch-invariant]");
    const struct golden_device device = {.backend = argv[1],
                                         .dtype =
                                             strcmp(argv[2], "f16") == 0 ? DTYPE_F16 : DTYPE_BF16,
                                         .batch_invariant = argc == 8};
    struct golden_run run;
    struct error err = {0};
    int32_t count = read_tokens(argv[4], tokens), first = atoi(argv[5]);
    if (golden_run_init(&run, argv[3], &device, &err) != 0) {
        fail(argv[3], err.message);
        return err.code == ERROR_DEVICE ? 77 : 1;
    }
    int status = 1;
    if (!are_tokens(tokens, count, run.model->config.vocab_size) || first < 1 || first > count)
        fail(argv[4], "not 1 to 512 tokens of the model, or STEP is more than there are");
    else
        status = dump(&run, tokens, count, first, argv[6]);
    golden_run_finish(&run);
    return status;
}
