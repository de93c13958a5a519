/* test_golden FOLDER NAME BACKEND [ISA]: one small model on one backend against Transformers, and
 * against itself however the prompt is cut into steps. Exit status 77 when the machine lacks ISA.
 */
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

struct golden {
    int32_t num_prompt, num_greedy, vocab_size;
    int32_t *prompt; /* [num_prompt] */
    int32_t *greedy; /* [num_greedy] */
    float *logits;   /* [num_prompt][vocab_size] */
};

struct fixture {
    const char *folder, *name, *backend, *isa;
    struct golden_run run;
    struct golden golden;
    float *logits; /* the prompt's, fed in one step */
};

/* In order, and with neighbours in the sequence far apart in the pool. */
static const struct golden_sequence straight = {0, {0, 1, 2, 3, 4}};
static const struct golden_sequence scrambled = {0, {70, 3, 41, 9, 25}};

static void *read_array(FILE *stream, size_t count, size_t bytes) {
    void *array = calloc(count, bytes);
    assert_non_null(array);
    assert_int_equal(fread(array, bytes, count, stream), count);
    return array;
}

static void read_golden(const char *path, struct golden *out) {
    FILE *stream = fopen(path, "rb");
    if (stream == NULL)
        fail_msg("cannot open %s", path);
    int32_t *sizes = read_array(stream, 3, sizeof(int32_t));
    *out = (struct golden){sizes[0], sizes[1], sizes[2], NULL, NULL, NULL};
    free(sizes);
    assert_in_range(out->num_prompt, 1, 64);
    assert_in_range(out->num_greedy, 1, 64);
    out->prompt = read_array(stream, (size_t)out->num_prompt, sizeof(int32_t));
    out->greedy = read_array(stream, (size_t)out->num_greedy, sizeof(int32_t));
    out->logits =
        read_array(stream, (size_t)out->num_prompt * (size_t)out->vocab_size, sizeof(float));
    fclose(stream);
}

static size_t logits_bytes(const struct golden *golden) {
    return (size_t)golden->num_prompt * (size_t)golden->vocab_size * sizeof(float);
}

/* Feeds the whole prompt, `chunk` tokens a step. */
static void run_prompt(struct fixture *f, struct golden_sequence *sequence, int32_t chunk,
                       float *out) {
    const struct golden *golden = &f->golden;
    for (int32_t at = 0; at < golden->num_prompt; at += chunk) {
        int32_t left = golden->num_prompt - at;
        golden_run_step(&f->run, sequence, golden->prompt + at, left < chunk ? left : chunk,
                        out + (size_t)at * (size_t)golden->vocab_size);
    }
}

/* In front of quantised weights the fast backend rounds activations to 8 bits; cpu-ref keeps them.
 */
static bool rounds_activations(const struct fixture *f) {
    return dtype_is_quantised(model_main_dtype(f->run.model)) && strcmp(f->backend, "cpu-ref") != 0;
}

static int setup(void **state) {
    struct fixture *f = *state;
    char path[4096];
    struct error err = {0};
    snprintf(path, sizeof(path), "%s/%s.gguf", f->folder, f->name);
    if (golden_run_init(&f->run, path, f->backend, f->isa, &err) != 0) {
        if (err.code == ERROR_CONFIG)
            exit(77);
        print_error("%s\n", err.message);
        return -1;
    }
    const char *kind = rounds_activations(f) ? "a8.golden" : "golden";
    snprintf(path, sizeof(path), "%s/%s.%s", f->folder, f->name, kind);
    read_golden(path, &f->golden);
    f->logits = malloc(logits_bytes(&f->golden));
    struct golden_sequence sequence = straight;
    run_prompt(f, &sequence, f->golden.num_prompt, f->logits);
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    golden_run_finish(&f->run);
    free(f->golden.prompt);
    free(f->golden.greedy);
    free(f->golden.logits);
    free(f->logits);
    return 0;
}

/* |a - b| / |b|, of whole rows. */
static double row_error(const float *a, const float *b, int32_t count) {
    double difference = 0.0, norm = 0.0;
    for (int32_t i = 0; i < count; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / norm);
}

static void test_logits_as_transformers(void **state) {
    struct fixture *f = *state;
    const struct golden *golden = &f->golden;
    double worst = 0.0;
    for (int32_t row = 0; row < golden->num_prompt; row++) {
        size_t at = (size_t)row * (size_t)golden->vocab_size;
        double error = row_error(f->logits + at, golden->logits + at, golden->vocab_size);
        worst = error > worst || isnan(error) ? error : worst;
    }
    print_message("# %s on %s (%s): largest relative error of a row %.2e\n", f->name, f->backend,
                  f->run.backend->description, worst);
    assert_true(worst <= (rounds_activations(f) ? 5e-3 : 1e-4));
}

static void test_greedy_as_transformers(void **state) {
    struct fixture *f = *state;
    const struct golden *golden = &f->golden;
    struct golden_sequence sequence = straight;
    int32_t token = golden_run_step(&f->run, &sequence, golden->prompt, golden->num_prompt, NULL);
    for (int32_t i = 0; i < golden->num_greedy; i++) {
        assert_int_equal(token, golden->greedy[i]);
        token = golden_run_step(&f->run, &sequence, &token, 1, NULL);
    }
}

static void assert_same_bits(struct fixture *f, const float *logits) {
    assert_memory_equal(logits, f->logits, logits_bytes(&f->golden));
}

static void test_steps_of_any_size(void **state) {
    static const int32_t chunks[] = {1, 7, 16};
    struct fixture *f = *state;
    float *logits = malloc(logits_bytes(&f->golden));
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        struct golden_sequence sequence = straight;
        run_prompt(f, &sequence, chunks[i], logits);
        assert_same_bits(f, logits);
    }
    free(logits);
}

static void test_blocks_in_any_order(void **state) {
    struct fixture *f = *state;
    float *logits = malloc(logits_bytes(&f->golden));
    struct golden_sequence sequence = scrambled;
    run_prompt(f, &sequence, f->golden.num_prompt, logits);
    assert_same_bits(f, logits);
    sequence = scrambled;
    run_prompt(f, &sequence, 7, logits);
    assert_same_bits(f, logits);
    free(logits);
}

/* Another sequence in the step changes nothing. */
static void test_with_company(void **state) {
    struct fixture *f = *state;
    const struct golden *golden = &f->golden;
    float *logits = malloc(logits_bytes(golden));
    for (int32_t company = 1; company <= golden->num_prompt; company += 13) {
        struct golden_sequence first = straight, second = scrambled;
        struct golden_sequence *const sequences[2] = {&first, &second};
        const int32_t *const tokens[2] = {golden->prompt, golden->prompt + 40 - company};
        const int32_t counts[2] = {golden->num_prompt, company};
        golden_run_step_pair(&f->run, sequences, tokens, counts, logits);
        assert_same_bits(f, logits);
    }
    free(logits);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: %s FOLDER NAME BACKEND [ISA]\n", argv[0]);
        return 2;
    }
    struct fixture fixture = {argv[1], argv[2], argv[3], argc > 4 ? argv[4] : NULL};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_logits_as_transformers, &fixture),
        cmocka_unit_test_prestate(test_greedy_as_transformers, &fixture),
        cmocka_unit_test_prestate(test_steps_of_any_size, &fixture),
        cmocka_unit_test_prestate(test_blocks_in_any_order, &fixture),
        cmocka_unit_test_prestate(test_with_company, &fixture),
    };
    void *state = &fixture;
    if (setup(&state) != 0)
        return 1;
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    teardown(&state);
    return status;
}
