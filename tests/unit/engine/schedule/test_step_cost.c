#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/schedule/step_cost.h"

/* A machine: ns of a step, a token, a row, and of a token seen by one of one, and of several. */
struct machine {
    double fixed, token, row, decoded, chunked;
};

static const struct machine slow = {8e6, 4e5, 2e5, 400, 500};

static double machine_ns(const struct machine *machine, const struct step_work *work) {
    const double *amounts = work->amounts;
    return machine->fixed + machine->token * amounts[STEP_WORK_TOKENS] +
           machine->row * amounts[STEP_WORK_ROWS] + machine->decoded * amounts[STEP_WORK_DECODED] +
           machine->chunked * amounts[STEP_WORK_CHUNKED];
}

static void add_chunk(struct step_work *work, int32_t begin, int32_t num_tokens, int32_t num_rows) {
    const struct step_chunk chunk = {
        .begin = begin, .num_tokens = num_tokens, .num_rows = num_rows};
    step_work_add(work, &chunk);
}

static struct step_work decodes(int32_t count, int32_t begin) {
    struct step_work work = {0};
    for (int32_t i = 0; i < count; i++)
        add_chunk(&work, begin, 1, 1);
    return work;
}

static void measure(struct step_cost *cost, const struct machine *machine,
                    const struct step_work *work, double factor) {
    step_cost_add(cost, work, (int64_t)(machine_ns(machine, work) * factor));
}

/* Prompts of num_tokens in chunks, each step with `count` that decode. */
static void compute_prompt(struct step_cost *cost, const struct machine *machine, int32_t count,
                           int32_t num_tokens, int32_t chunk_tokens) {
    for (int32_t begin = 0; begin < num_tokens; begin += chunk_tokens) {
        struct step_work work = decodes(count, 100 + begin / chunk_tokens);
        add_chunk(&work, begin, chunk_tokens, begin + chunk_tokens >= num_tokens);
        measure(cost, machine, &work, 1);
    }
}

static void learn(struct step_cost *cost, const struct machine *machine) {
    for (int32_t i = 0; i < 50; i++) {
        const struct step_work work = decodes(1 + i % 8, 20 * i);
        measure(cost, machine, &work, 1);
    }
    compute_prompt(cost, machine, 0, 2048, 256);
    compute_prompt(cost, machine, 8, 2048, 64);
}

static void assert_near(const struct step_cost *cost, const struct machine *machine,
                        const struct step_work *work, double part) {
    double expected = machine_ns(machine, work), ns = step_cost_ns(cost, work);
    assert_true(ns > expected * (1 - part) && ns < expected * (1 + part));
}

static void work_counts_the_tokens_that_are_seen(void **state) {
    struct step_work work = {0};
    const struct step_chunk none = {.begin = 10}, full = {.begin = 2, .num_tokens = 3},
                            windowed = {.begin = 2, .num_tokens = 4, .num_rows = 4, .window = 4},
                            far = {.begin = 1000, .num_tokens = 1, .num_rows = 1, .window = 4};
    step_work_add(&work, &none);
    assert_true(work.amounts[STEP_WORK_FIXED] == 0);
    step_work_add(&work, &full);
    assert_true(work.amounts[STEP_WORK_CHUNKED] == 3 + 4 + 5);
    step_work_add(&work, &windowed);
    assert_true(work.amounts[STEP_WORK_CHUNKED] == 12 + 3 + 4 + 4 + 4);
    step_work_add(&work, &far);
    assert_true(work.amounts[STEP_WORK_DECODED] == 4);
    assert_true(work.amounts[STEP_WORK_FIXED] == 1);
    assert_true(work.amounts[STEP_WORK_TOKENS] == 8);
    assert_true(work.amounts[STEP_WORK_ROWS] == 5);
}

static void nothing_is_known_at_first(void **state) {
    struct step_cost cost = {0};
    const struct step_work none = {0}, some = decodes(3, 10);
    assert_true(step_cost_ns(&cost, &some) == 0 && step_cost_careful_ns(&cost, &some) == 0);
    step_cost_add(&cost, &none, 1000);
    step_cost_add(&cost, &some, 0);
    step_cost_add(&cost, &some, -5);
    assert_int_equal(cost.num_steps, 0);
}

static void costs_are_told_apart(void **state) {
    static const struct machine machines[] = {
        {8e6, 4e5, 2e5, 400, 500}, {3e6, 5e3, 8e3, 1, 2}, {4e7, 9e4, 0, 900, 100}};
    for (int i = 0; i < 3; i++) {
        struct step_cost cost = {0};
        learn(&cost, &machines[i]);
        struct step_work work = decodes(8, 300);
        assert_near(&cost, &machines[i], &work, 0.05);
        add_chunk(&work, 1500, 32, 0);
        assert_near(&cost, &machines[i], &work, 0.1);
        work = decodes(4, 500);
        add_chunk(&work, 6000, 16, 0); /* farther than any before */
        assert_near(&cost, &machines[i], &work, 0.25);
    }
}

static void an_outlier_teaches_little(void **state) {
    struct step_cost cost = {0};
    learn(&cost, &slow);
    struct step_work work = decodes(8, 300);
    add_chunk(&work, 1500, 32, 0);
    measure(&cost, &slow, &work, 100);
    assert_near(&cost, &slow, &work, 0.5);
    for (int i = 0; i < 10; i++)
        measure(&cost, &slow, &work, 1);
    assert_near(&cost, &slow, &work, 0.1);
    measure(&cost, &slow, &work, 0.001);
    assert_near(&cost, &slow, &work, 0.5);
}

static void a_slower_machine_is_followed(void **state) {
    struct step_cost cost = {0};
    learn(&cost, &slow);
    struct step_work work = decodes(8, 300);
    add_chunk(&work, 1500, 32, 0);
    for (int i = 0; i < 20; i++)
        measure(&cost, &slow, &work, 3);
    assert_true(step_cost_ns(&cost, &work) > 2.7 * machine_ns(&slow, &work));
    for (int i = 0; i < 20; i++)
        measure(&cost, &slow, &work, 1);
    assert_near(&cost, &slow, &work, 0.1);
}

/* However long nothing but decoding was measured, a first prompt is fed carefully. */
static void what_was_never_measured_is_doubted(void **state) {
    struct step_cost cost = {0};
    for (int i = 0; i < 10000; i++) {
        const struct step_work work = decodes(8, i % 4000);
        measure(&cost, &slow, &work, i % 2 == 0 ? 0.9 : 1.1);
    }
    const struct step_work work = decodes(8, 300);
    assert_near(&cost, &slow, &work, 0.2);
    const struct step_chunk prompt = {.begin = 0, .num_tokens = 512};
    int32_t first = step_cost_fit(&cost, &work, &prompt, 100e6);
    assert_in_range(first, 1, 250);
    for (int32_t begin = 0; begin < 8000;) {
        struct step_chunk chunk = {.begin = begin, .num_tokens = 512};
        chunk.num_tokens = step_cost_fit(&cost, &work, &chunk, 100e6);
        assert_in_range(chunk.num_tokens, 1, 250);
        struct step_work step = work;
        step_work_add(&step, &chunk);
        assert_true(machine_ns(&slow, &step) < 130e6);
        measure(&cost, &slow, &step, 1);
        begin += chunk.num_tokens;
    }
}

static void chunks_fill_the_time(void **state) {
    struct step_cost cost = {0};
    learn(&cost, &slow);
    const struct step_work work = decodes(8, 300);
    struct step_chunk chunk = {.begin = 1000, .num_tokens = 512};
    int32_t fitting = step_cost_fit(&cost, &work, &chunk, 100e6);
    struct step_work fits = work, is_too_much = work;
    chunk.num_tokens = fitting;
    step_work_add(&fits, &chunk);
    chunk.num_tokens = fitting + 1;
    step_work_add(&is_too_much, &chunk);
    assert_true(step_cost_careful_ns(&cost, &fits) <= 100e6);
    assert_true(step_cost_careful_ns(&cost, &is_too_much) > 100e6);
    assert_true(machine_ns(&slow, &fits) > 70e6 && machine_ns(&slow, &fits) < 110e6);
    const struct step_chunk small = {.begin = 1000, .num_tokens = 3};
    assert_int_equal(step_cost_fit(&cost, &work, &small, 100e6), 3);
    assert_int_equal(step_cost_fit(&cost, &work, &small, 1e6), 0);
    const struct step_chunk scored = {.begin = 1000, .num_tokens = 512, .num_rows = 512};
    assert_true(step_cost_fit(&cost, &work, &scored, 100e6) < fitting);
}

/* A machine that is held up every few steps gets smaller chunks, until it is left alone again. */
static void noise_makes_chunks_smaller(void **state) {
    struct step_cost cost = {0};
    const struct step_work work = decodes(8, 300);
    const struct step_chunk chunk = {.begin = 1000, .num_tokens = 512};
    int32_t fitting[3];
    for (int i = 0; i < 3; i++) {
        for (int repeat = 0; repeat < 100; repeat++) {
            struct step_work step = work;
            add_chunk(&step, 1000 + 8 * repeat, 16 + repeat % 3 * 16, 0);
            measure(&cost, &slow, &step, i == 1 && repeat % 6 == 0 ? 1.6 : 1);
        }
        fitting[i] = step_cost_fit(&cost, &work, &chunk, 100e6);
    }
    assert_true(fitting[1] < fitting[0] * 0.85 && fitting[1] > fitting[0] * 0.3);
    assert_true(fitting[2] > fitting[0] * 0.95);
}

/* Decoding alone says nothing of the noise of chunks. */
static void noise_of_decoding_does_not_count(void **state) {
    struct step_cost cost = {0};
    learn(&cost, &slow);
    double noise = cost.noise;
    for (int i = 0; i < 50; i++) {
        const struct step_work work = decodes(8, 300);
        measure(&cost, &slow, &work, i % 2 == 0 ? 0.5 : 1.5);
    }
    assert_true(cost.noise == noise);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_counts_the_tokens_that_are_seen),
        cmocka_unit_test(nothing_is_known_at_first),
        cmocka_unit_test(costs_are_told_apart),
        cmocka_unit_test(an_outlier_teaches_little),
        cmocka_unit_test(a_slower_machine_is_followed),
        cmocka_unit_test(what_was_never_measured_is_doubted),
        cmocka_unit_test(chunks_fill_the_time),
        cmocka_unit_test(noise_makes_chunks_smaller),
        cmocka_unit_test(noise_of_decoding_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
