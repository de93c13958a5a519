/* test_quantised_family FOLDER NAME [TOKENIZER]: the folder NAME of a family becomes a GGUF file,
 * and the file must compute what Transformers does with the folder (NAME.golden): as F32, which
 * keeps every weight, within the rounding of the arithmetic; as F16 and Q8_0 within that of the
 * type. A folder without a tokenizer.json is given TOKENIZER; it is a quantised checkpoint, and
 * becomes F32 only. */
#include "models/convert/conversion.h"
#include "tests/golden/golden_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct golden {
    int32_t num_prompt, vocab_size;
    int32_t prompt[64];
    float *logits; /* [num_prompt][vocab_size] */
};

static const char *folder, *name, *tokenizer;
static struct golden golden;

static void read_items(FILE *stream, void *out, size_t count) {
    assert_int_equal(fread(out, 4, count, stream), count);
}

static int read_golden(void **state) {
    char path[512];
    int32_t sizes[3], greedy[64];
    snprintf(path, sizeof(path), "%s/%s.golden", folder, name);
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    read_items(stream, sizes, 3);
    assert_in_range(sizes[0], 1, 64);
    assert_in_range(sizes[1], 1, 64);
    golden.num_prompt = sizes[0];
    golden.vocab_size = sizes[2];
    read_items(stream, golden.prompt, (size_t)sizes[0]);
    read_items(stream, greedy, (size_t)sizes[1]);
    size_t count = (size_t)sizes[0] * (size_t)sizes[2];
    golden.logits = calloc(count, sizeof(float));
    assert_non_null(golden.logits);
    read_items(stream, golden.logits, count);
    fclose(stream);
    return 0;
}

static int free_golden(void **state) {
    free(golden.logits);
    return 0;
}

static const char *const linked[] = {"config.json", "model.safetensors", "tokenizer.json"};

/* Makes a folder of links to the checkpoint's files and the tokenizer. */
static void link_files(char *directory) {
    char from[512], to[512];
    assert_non_null(mkdtemp(directory));
    for (int i = 0; i < 3; i++) {
        snprintf(from, sizeof(from), "%s/%s/%s", folder, name, linked[i]);
        snprintf(to, sizeof(to), "%s/%s", directory, linked[i]);
        assert_int_equal(symlink(i < 2 ? from : tokenizer, to), 0);
    }
}

static void remove_links(const char *directory) {
    char path[512];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, linked[i]);
        unlink(path);
    }
    rmdir(directory);
}

static void convert(const char *type, const char *out) {
    const struct conversion_settings settings = {
        .types = {quant_mixture_find(type), DTYPE_NONE, DTYPE_NONE, false, false},
        .allow_requantize = tokenizer != NULL};
    struct conversion *conversion;
    struct error err = {0};
    char path[512], links[] = "/tmp/quire-checkpoint-XXXXXX";
    if (tokenizer != NULL)
        link_files(links);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int status = conversion_open(tokenizer != NULL ? links : path, &settings, &conversion, &err);
    if (status == 0) {
        status = conversion_write(conversion, out, 1, NULL, &err);
        conversion_close(conversion);
    }
    if (tokenizer != NULL)
        remove_links(links);
    if (status != 0)
        fail_msg("%s", err.message);
}

static double row_error(const float *ours, const float *theirs) {
    double difference = 0.0, norm = 0.0;
    for (int32_t i = 0; i < golden.vocab_size; i++) {
        difference += pow((double)ours[i] - (double)theirs[i], 2);
        norm += pow((double)theirs[i], 2);
    }
    return sqrt(difference / norm);
}

/* Returns the largest error of a row. */
static double largest_error(const char *path) {
    const struct golden_device device = {.backend = "cpu-ref", .kv_type = KV_F32};
    struct golden_run run = {0};
    struct golden_sequence sequence = {0, {0, 1, 2, 3, 4}};
    struct error err = {0};
    size_t vocab = (size_t)golden.vocab_size;
    float *logits = calloc((size_t)golden.num_prompt * vocab, sizeof(float));
    double largest = 0.0;
    assert_non_null(logits);
    if (golden_run_init(&run, path, &device, &err) != 0)
        fail_msg("%s", err.message);
    golden_run_step(&run, &sequence, golden.prompt, golden.num_prompt, logits);
    for (size_t i = 0; i < (size_t)golden.num_prompt; i++) {
        double error = row_error(logits + i * vocab, golden.logits + i * vocab);
        largest = error > largest ? error : largest;
    }
    golden_run_finish(&run);
    free(logits);
    return largest;
}

/* The models are made to be sensitive: what a row of weights loses shows ten times in the logits.
 */
static void check(const char *type, double tolerance) {
    char path[] = "/tmp/quire-quantised-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    convert(type, path);
    double error = largest_error(path);
    unlink(path);
    print_message("%s as %s: largest error of a row %.1e\n", name, type, error);
    if (!(error <= tolerance))
        fail_msg("%s: a row differs by %.1e, allowed %.1e", type, error, tolerance);
}

static void test_f32_keeps_the_model(void **state) {
    check("F32", 1e-4);
}

static void test_f16(void **state) {
    check("F16", 1e-3);
}

static void test_q8_0(void **state) {
    check("Q8_0", 1.5e-1); /* measured: 1.2e-1 (glm4.5) */
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32_keeps_the_model),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_q8_0),
    };
    const struct CMUnitTest of_checkpoint[] = {cmocka_unit_test(test_f32_keeps_the_model)};
    if (argc != 3 && argc != 4)
        return 2;
    folder = argv[1];
    name = argv[2];
    tokenizer = argc == 4 ? argv[3] : NULL;
    return tokenizer != NULL ? cmocka_run_group_tests(of_checkpoint, read_golden, free_golden)
                             : cmocka_run_group_tests(tests, read_golden, free_golden);
}
