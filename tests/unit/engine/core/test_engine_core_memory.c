/* Memory that runs out at any moment of a request's life inside the engine, for good or for a
 * while: each choice still ends with exactly one last event, and every block comes back. The
 * linker puts the functions below in front of the C library's. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/core/engine_core.h"
#include "engine/draft/ngram_drafter.h"
#include "engine/grammar/machine/grammar.h"
#include "tests/sim/fake_executor.h"
#include "tests/sim/fake_lora.h"
#include "tests/sim/fake_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define NUM_CHOICES 3
#define NUM_PROMPT_TOKENS 40
#define FOREVER (1L << 40)
#define MAX_STEPS 1000

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *data, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *data, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static long num_allocations;   /* since memory began to be short */
static size_t allocated_bytes; /* since start */
static long first_failure = FOREVER, num_failures;

static bool allocation_fails(void) {
    long index = num_allocations++;
    return index >= first_failure && index - first_failure < num_failures;
}

void *__wrap_malloc(size_t bytes) {
    allocated_bytes += bytes;
    return allocation_fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    allocated_bytes += bytes;
    return allocation_fails() ? NULL : __real_aligned_alloc(alignment, bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    allocated_bytes += count * bytes;
    return allocation_fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *data, size_t bytes) {
    return allocation_fails() ? NULL : __real_realloc(data, bytes);
}

static void set_failures(long first, long count) {
    num_allocations = 0;
    first_failure = first;
    num_failures = count;
}

/* The kind of request: text, text that matches a grammar, or an embedding. */
enum kind { TEXT, LETTERS, POOLED };

/* How the next step is planned: when the one before is done, while it runs, or with drafts. */
enum planning { AFTER, AHEAD, DRAFTED };

struct setup {
    enum kind kind;
    enum planning planning;
};

static const struct setup setups[] = {
    {TEXT, AFTER},    {LETTERS, AFTER}, {POOLED, AFTER}, {TEXT, AHEAD},
    {LETTERS, AHEAD}, {POOLED, AHEAD},  {TEXT, DRAFTED}, {LETTERS, DRAFTED},
};
#define NUM_SETUPS (sizeof(setups) / sizeof(setups[0]))

struct fixture {
    enum kind kind;
    struct serving_limits limits;
    struct drafter *drafter; /* or NULL */
    struct grammar_vocabulary *vocabulary;
    struct fake_executor executor;
    struct engine_core core;
    struct request *request;
    struct token_buffer buffer;
    int64_t now;
    int num_news;
    int num_ends[NUM_CHOICES];
    int num_errors;
};

static int64_t read_clock(void *context) {
    return ++((struct fixture *)context)->now;
}

static void on_news(void *context, struct request *request) {
    ((struct fixture *)context)->num_news++;
}

/* Any number of a, b and c. */
static struct grammar *letters(void) {
    static const struct character_range range = {'a', 'c'};
    struct grammar_builder *builder = grammar_builder_create();
    struct grammar *grammar = NULL;
    struct error err;
    grammar_node letter = grammar_characters(builder, &range, 1, false);
    grammar_node root = grammar_repeat(builder, letter, 0, -1);
    assert_int_equal(grammar_build(builder, root, &grammar, &err), 0);
    grammar_builder_destroy(builder);
    return grammar;
}

static struct request *make_request(enum kind kind) {
    int32_t prompt[NUM_PROMPT_TOKENS];
    for (int32_t i = 0; i < NUM_PROMPT_TOKENS; i++)
        prompt[i] = FAKE_FIRST_PLAIN + i % (FAKE_VOCAB_SIZE - FAKE_FIRST_PLAIN);
    struct sampling_params params = {
        .num_choices = NUM_CHOICES,
        .max_tokens = 90,
        .settings.top_p = 1,
        .settings.repetition_penalty = 1.5f,
        .seed = 42,
        .num_logprobs = 2,
        .num_prompt_logprobs = 2,
        .ignore_eos = true,
        .skip_special_tokens = true,
    };
    if (kind == LETTERS)
        params.grammar = letters();
    if (kind == POOLED) {
        params.pooling = POOLING_MEAN;
        params.num_choices = 1;
        params.max_tokens = 0;
        params.num_prompt_logprobs = -1;
    }
    struct request *request = request_create(prompt, NUM_PROMPT_TOKENS, &params);
    assert_non_null(request);
    grammar_unref(params.grammar);
    request->id = 1;
    return request;
}

/* A pool that makes the choices preempt each other. */
static void start(struct fixture *f, const struct setup *setup) {
    struct error err = {0};
    memset(f, 0, sizeof(*f));
    f->kind = setup->kind;
    assert_int_equal(grammar_vocabulary_create(fake_tokenizer(), &f->vocabulary, &err), 0);
    f->limits = (struct serving_limits){.max_num_seqs = 4,
                                        .max_num_batched_tokens = 16,
                                        .max_model_len = 160,
                                        .block_size = 4,
                                        .num_blocks = 60,
                                        .vocab_size = FAKE_VOCAB_SIZE,
                                        .hidden_size = FAKE_HIDDEN_SIZE};
    if (setup->planning == DRAFTED) {
        f->limits.num_speculative_tokens = 3;
        assert_int_equal(ngram_drafter_create(2, 1, &f->drafter, &err), 0);
    }
    const struct engine_core_config config = {
        .schedule.kv.limits = &f->limits,
        .schedule.kv.num_tenants = 1,
        .schedule.kv.caching = true,
        .lora = fake_lora_shape(2),
        .async_scheduling = setup->planning != AFTER,
        .drafter = f->drafter,
        .vocabulary = f->vocabulary,
        .stall_timeout_ns = INT64_MAX / 4,
        .clock = read_clock,
        .notify = on_news,
        .context = f,
    };
    fake_executor_init(&f->executor, f->limits.num_blocks, f->limits.block_size,
                       f->limits.max_num_batched_tokens);
    size_t before = allocated_bytes;
    assert_int_equal(engine_core_init(&f->core, &config, &f->executor.base, fake_tokenizer(), &err),
                     0);
    assert_int_equal(allocated_bytes - before, engine_core_bytes(&config, fake_tokenizer()));
    f->request = make_request(setup->kind);
}

/* Whatever failed, what came out matches. */
static void assert_letters(const struct token_event *event) {
    for (int32_t i = 0; event->kind == TOKEN_EVENT_TEXT && i < event->num_tokens; i++) {
        int32_t token = event->tokens[i].token;
        struct text piece = tokenizer_piece(fake_tokenizer(), token);
        for (size_t c = 0; c < piece.length && !tokenizer_is_eos(fake_tokenizer(), token); c++)
            assert_in_range(piece.data[c], 'a', 'c');
    }
}

static void read_stream(struct fixture *f) {
    struct token_event event;
    token_stream_take(&f->request->stream, &f->buffer);
    while (token_buffer_next(&f->buffer, &event)) {
        assert_int_equal(f->num_ends[event.choice], 0);
        f->num_ends[event.choice] += event.finish != FINISH_NONE;
        f->num_errors += event.finish == FINISH_ERROR;
        if (f->kind == LETTERS)
            assert_letters(&event);
    }
}

static void stop(struct fixture *f) {
    assert_int_equal(f->core.scheduler.blocks.pool.num_used, 0);
    assert_string_equal(f->executor.violation, "");
    token_buffer_finish(&f->buffer);
    request_unref(f->request);
    engine_core_finish(&f->core);
    grammar_vocabulary_destroy(f->vocabulary);
    fake_executor_finish(&f->executor);
    if (f->drafter != NULL)
        f->drafter->ops->destroy(f->drafter);
}

/* Runs the request with `count` failed allocations from the one numbered `first` on. Returns how
 * many choices ended with an error. */
static int run(const struct setup *setup, long first, long count) {
    struct fixture f;
    start(&f, setup);
    set_failures(first, count);
    engine_core_add(&f.core, f.request);
    for (int i = 0; i < MAX_STEPS && !engine_core_is_idle(&f.core); i++) {
        engine_core_step(&f.core);
        if (i % 3 == 0)
            read_stream(&f);
    }
    num_failures = 0;
    for (int i = 0; i < MAX_STEPS && !engine_core_is_idle(&f.core); i++)
        engine_core_step(&f.core);
    assert_true(engine_core_is_idle(&f.core));
    assert_true(f.num_news > 0);
    read_stream(&f);
    for (int choice = 0; choice < f.request->params.num_choices; choice++)
        assert_int_equal(f.num_ends[choice], 1);
    int num_errors = f.num_errors;
    stop(&f);
    return num_errors;
}

static long allocations_of_a_run(const struct setup *setup) {
    assert_int_equal(run(setup, FOREVER, 0), 0);
    return num_allocations;
}

static void test_every_failed_allocation(void **state) {
    static const struct {
        long fewest; /* of POOLED: of the group, and of the sum between steps */
        int num_choices;
    } expected[] = {{10, NUM_CHOICES}, {10, NUM_CHOICES}, {3, 1}};
    for (size_t i = 0; i < NUM_SETUPS; i++) {
        long total = allocations_of_a_run(&setups[i]);
        assert_true(total >= expected[setups[i].kind].fewest);
        for (long first = 0; first < total; first++)
            assert_in_range(run(&setups[i], first, 1), 0, expected[setups[i].kind].num_choices);
    }
}

static void test_memory_gone_until_the_end(void **state) {
    for (size_t i = 0; i < NUM_SETUPS; i++) {
        long total = allocations_of_a_run(&setups[i]);
        for (long first = 0; first < total; first++)
            run(&setups[i], first, FOREVER);
    }
}

/* Reported with what was reserved when the request was made. */
static void test_no_memory_to_begin_with(void **state) {
    struct fixture f;
    start(&f, &setups[0]);
    set_failures(0, FOREVER);
    engine_core_add(&f.core, f.request);
    num_failures = 0;
    assert_true(engine_core_is_idle(&f.core));
    assert_int_equal(f.num_news, 1);
    read_stream(&f);
    assert_int_equal(f.num_errors, NUM_CHOICES);
    stop(&f);
}

/* Shutting down must not fail either: what cannot be reported is freed all the same. */
static void test_no_memory_to_end_with(void **state) {
    for (size_t i = 0; i < NUM_SETUPS; i++) {
        struct fixture f;
        if (setups[i].kind == POOLED)
            continue;
        start(&f, &setups[i]);
        engine_core_add(&f.core, f.request);
        for (int k = 0; k < 30; k++)
            engine_core_step(&f.core);
        token_stream_take(&f.request->stream, &f.buffer);
        set_failures(0, FOREVER);
        engine_core_abort(&f.core, FINISH_ABORT);
        assert_false(engine_core_is_idle(&f.core));
        stop(&f);
        num_failures = 0;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failed_allocation),
        cmocka_unit_test(test_memory_gone_until_the_end),
        cmocka_unit_test(test_no_memory_to_begin_with),
        cmocka_unit_test(test_no_memory_to_end_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
