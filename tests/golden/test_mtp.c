/* test_mtp FOLDER NAME BACKEND [bf16|f16]
 *
 * A model's layer that predicts further tokens against its definition (scripts/golden/make_mtp.py),
 * after a prompt that the model has computed, and then after its own drafts. NAME is that of a GGUF
 * file, or of a Hugging Face folder with "/" behind it. Exit status 77 when the machine lacks a
 * GPU.
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

enum { MAX_PROMPT = 64, MAX_DRAFTS = 8, MAX_VOCAB = 512 };

struct golden {
    int32_t num_prompt, num_drafts, vocab_size;
    int32_t prompt[MAX_PROMPT], drafts[MAX_DRAFTS];
    float logits[MAX_PROMPT + MAX_DRAFTS][MAX_VOCAB]; /* of the rows after the prompt's first */
};

struct fixture {
    const char *folder, *name;
    struct golden_device device;
    double tolerance; /* of a row, |ours - theirs| / |theirs| */
    struct golden golden;
    struct golden_run model, layer;
};

static void read_some(FILE *stream, void *out, int32_t count) {
    assert_int_equal(fread(out, 4, (size_t)count, stream), count);
}

static void read_golden(const struct fixture *f, struct golden *out) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%.*s.golden", f->folder, (int)strcspn(f->name, "/"), f->name);
    FILE *stream = fopen(path, "rb");
    if (stream == NULL)
        fail_msg("cannot open %s", path);
    read_some(stream, &out->num_prompt, 3);
    assert_in_range(out->num_prompt, 2, MAX_PROMPT);
    assert_in_range(out->num_drafts, 1, MAX_DRAFTS);
    assert_in_range(out->vocab_size, 1, MAX_VOCAB);
    read_some(stream, out->prompt, out->num_prompt);
    read_some(stream, out->drafts, out->num_drafts);
    for (int32_t r = 0; r < out->num_prompt + out->num_drafts - 2; r++)
        read_some(stream, out->logits[r], out->vocab_size);
    fclose(stream);
}

static void start(struct fixture *f) {
    struct error err = {0};
    char path[512];
    size_t length = strlen(f->name);
    bool is_folder = f->name[length - 1] == '/';
    snprintf(path, sizeof(path), "%s/%s%s", f->folder, f->name, is_folder ? "" : ".gguf");
    read_golden(f, &f->golden);
    struct golden_device device = f->device;
    int status = golden_run_init(&f->model, path, &device, &err);
    device.drafts_for = &f->model;
    if (status == 0)
        status = golden_run_init(&f->layer, path, &device, &err);
    if (status != 0 && err.code == ERROR_DEVICE)
        exit(77);
    if (status != 0)
        fail_msg("%s", err.message);
}

static void stop(struct fixture *f) {
    golden_run_finish(&f->layer);
    golden_run_finish(&f->model);
}

/* Computes the prompt, and the layer after it `count` tokens at a time and then after its drafts.
 * Checks the drafts, unless the device rounds them. */
static void run(struct fixture *f, int32_t count, float logits[][MAX_VOCAB]) {
    const struct golden *golden = &f->golden;
    struct golden_sequence sequence = {0, {70, 3, 41, 9, 25}}, behind = sequence;
    int32_t last = 0, num_rows = golden->num_prompt - 1, vocab = golden->vocab_size;
    float *flat = calloc((size_t)num_rows * (size_t)vocab, sizeof(float));
    assert_non_null(flat);
    golden_run_step(&f->model, &sequence, golden->prompt, golden->num_prompt, NULL);
    for (int32_t done = 0; done < num_rows; done += count) {
        int32_t now = num_rows - done < count ? num_rows - done : count;
        f->layer.keeps_states = done + now == num_rows;
        last = golden_run_step(&f->layer, &behind, golden->prompt + 1 + done, now,
                               flat + (size_t)done * (size_t)vocab);
    }
    for (int32_t r = 0; r < num_rows; r++)
        memcpy(logits[r], flat + (size_t)r * (size_t)vocab, (size_t)vocab * sizeof(float));
    free(flat);
    for (int32_t i = 0; i < golden->num_drafts; i++) {
        if (f->device.dtype == DTYPE_F32)
            assert_int_equal(last, golden->drafts[i]);
        if (i < golden->num_drafts - 1)
            last = golden_run_step(&f->layer, &behind, &golden->drafts[i], 1, logits[num_rows + i]);
    }
}

static double error_of(const float *ours, const float *theirs, int32_t count) {
    double difference = 0, length = 0;
    for (int32_t i = 0; i < count; i++) {
        difference += pow((double)ours[i] - theirs[i], 2);
        length += pow(theirs[i], 2);
    }
    return sqrt(difference / length);
}

static void test_logits(void **state) {
    struct fixture *f = *state;
    static float logits[MAX_PROMPT + MAX_DRAFTS][MAX_VOCAB];
    double largest = 0;
    start(f);
    run(f, MAX_PROMPT, logits);
    for (int32_t r = 0; r < f->golden.num_prompt + f->golden.num_drafts - 2; r++) {
        double error = error_of(logits[r], f->golden.logits[r], f->golden.vocab_size);
        largest = error > largest ? error : largest;
    }
    print_message("# largest error of a row: %.2e\n", largest);
    assert_true(largest <= f->tolerance);
    stop(f);
}

/* However the tokens are cut into steps. */
static void test_bits(void **state) {
    static const int32_t counts[] = {1, 7};
    struct fixture *f = *state;
    static float whole[MAX_PROMPT + MAX_DRAFTS][MAX_VOCAB], cut[MAX_PROMPT + MAX_DRAFTS][MAX_VOCAB];
    start(f);
    run(f, MAX_PROMPT, whole);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        run(f, counts[i], cut);
        assert_memory_equal(cut, whole, sizeof(whole));
    }
    stop(f);
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    bool rounds = argc > 4;
    static struct fixture f;
    f = (struct fixture){.folder = argv[1],
                         .name = argv[2],
                         .tolerance = rounds ? 5e-2 : 1e-4,
                         .device = {.backend = argv[3],
                                    .dtype = !rounds                       ? DTYPE_F32
                                             : strcmp(argv[4], "f16") == 0 ? DTYPE_F16
                                                                           : DTYPE_BF16,
                                    .batch_invariant = true}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_logits, &f),
        cmocka_unit_test_prestate(test_bits, &f),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
