/* The threads that find masks: all jobs come back with what was wanted, shares take turns, and
 * stopping ends what is not done. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/grammar/machine/grammar_machine.h"
#include "engine/grammar/read/grammar_regex.h"
#include "engine/core/mask_workers.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#define NUM_JOBS 12
#define LEAST_COST (4 << 17) /* several turns */

static char dear[2048]; /* a pattern whose mask takes many turns */

static struct tokenizer tokenizer;
static struct grammar_vocabulary *vocabulary;

static int set_up(void **state) {
    size_t length = 0;
    fixture_init_bytes(&tokenizer);
    for (int i = 0; i < 200; i++)
        fixture_add(&tokenizer, (char[]){(char)('a' + i % 26), (char)('a' + i / 26), 'x'}, 3);
    for (char c = 'a'; c <= 'z'; c++)
        length += (size_t)snprintf(dear + length, sizeof(dear) - length,
                                   "%s(?:.{0,300}%c.{0,300}){1,9}", length > 0 ? "|" : "", c);
    struct error err;
    return grammar_vocabulary_create(&tokenizer, &vocabulary, &err);
}

static int tear_down(void **state) {
    grammar_vocabulary_destroy(vocabulary);
    return 0;
}

struct wanted {
    struct grammar *grammar;
    struct grammar_state *state;
};

static struct wanted want(const char *pattern) {
    struct grammar_builder *builder = grammar_builder_create();
    struct wanted wanted = {0};
    grammar_node root;
    struct error err = {0};
    uint32_t mask[FIXTURE_WORDS];
    int64_t budget = 1;
    assert_int_equal(grammar_regex(builder, pattern, REGEX_TEXT, &root, &err), 0);
    assert_int_equal(grammar_build(builder, root, &wanted.grammar, &err), 0);
    grammar_builder_destroy(builder);
    wanted.state = grammar_state_create(wanted.grammar, vocabulary);
    assert_int_equal(grammar_state_try_mask(wanted.state, &budget, mask), 1);
    return wanted;
}

static void add(struct mask_workers *workers, const struct wanted *wanted, uint64_t id,
                int32_t share) {
    struct grammar_job *job = grammar_job_begin(wanted->grammar);
    job->id = id;
    job->share = share;
    workers->ops->add(workers, job);
}

static void finish(struct wanted *wanted) {
    grammar_state_destroy(wanted->state);
    grammar_unref(wanted->grammar);
}

/* How a test and the threads wait for each other. */
struct stage {
    sem_t done; /* posted for each job that is done */
    sem_t go;   /* taken before a thread goes on after it */
    bool holds;
};

static void wake(void *context) {
    struct stage *stage = context;
    sem_post(&stage->done);
    if (stage->holds)
        sem_wait(&stage->go);
}

static struct mask_workers *create(struct stage *stage, int32_t num_threads) {
    const struct mask_workers_config config = {
        .num_threads = num_threads, .num_shares = 3, .wake = wake, .context = stage};
    struct mask_workers *workers = NULL;
    struct error err;
    sem_init(&stage->done, 0, 0);
    sem_init(&stage->go, 0, 0);
    assert_int_equal(mask_workers_create(&config, &workers, &err), 0);
    return workers;
}

static void end(struct stage *stage, struct mask_workers *workers) {
    workers->ops->stop(workers);
    assert_null(workers->ops->take(workers));
    mask_workers_destroy(workers);
    sem_destroy(&stage->done);
    sem_destroy(&stage->go);
}

static void test_masks(void **unused) {
    struct stage stage = {.holds = false};
    struct mask_workers *workers = create(&stage, 3);
    struct wanted wanted[NUM_JOBS], alone = want(dear);
    uint32_t expected[FIXTURE_WORDS] = {0}, found[FIXTURE_WORDS] = {0};
    assert_int_equal(grammar_state_mask(alone.state, expected), 0);
    assert_true(alone.grammar->machine->last_cost > LEAST_COST);
    for (int i = 0; i < NUM_JOBS; i++) {
        wanted[i] = want(dear);
        add(workers, &wanted[i], (uint64_t)i, i % 3);
    }
    for (int i = 0; i < NUM_JOBS; i++)
        sem_wait(&stage.done);
    for (int i = 0; i < NUM_JOBS; i++) {
        struct grammar_job *job = workers->ops->take(workers);
        int64_t budget = 0;
        assert_int_equal(job->id, i);
        assert_ptr_equal(job->grammar, wanted[i].grammar);
        grammar_job_end(job);
        assert_int_equal(grammar_state_try_mask(wanted[i].state, &budget, found), 0);
        assert_memory_equal(found, expected, sizeof(found));
        finish(&wanted[i]);
    }
    finish(&alone);
    end(&stage, workers);
}

/* While the only thread is held, a share brings three jobs, and then another share one as long: it
 * is done first, as it has every second turn. */
static void test_turns(void **unused) {
    struct stage stage = {.holds = true};
    struct mask_workers *workers = create(&stage, 1);
    struct wanted first = want("a"), wanted[4];
    add(workers, &first, 1, 2);
    sem_wait(&stage.done);
    for (int i = 0; i < 4; i++) {
        wanted[i] = want(dear);
        add(workers, &wanted[i], (uint64_t)i + 2, i == 3);
    }
    grammar_job_end(workers->ops->take(workers));
    sem_post(&stage.go);
    sem_wait(&stage.done);
    struct grammar_job *job = workers->ops->take(workers);
    assert_int_equal(job->id, 5);
    grammar_job_end(job);
    for (int i = 0; i < 3; i++) {
        sem_post(&stage.go);
        sem_wait(&stage.done);
        grammar_job_end(workers->ops->take(workers));
    }
    sem_post(&stage.go);
    finish(&first);
    for (int i = 0; i < 4; i++)
        finish(&wanted[i]);
    end(&stage, workers);
}

static void test_stop(void **unused) {
    struct stage stage = {.holds = true};
    struct mask_workers *workers = create(&stage, 1);
    struct wanted first = want("a"), waiting = want(dear);
    add(workers, &first, 1, 0);
    sem_wait(&stage.done);
    add(workers, &waiting, 2, 0);
    workers->ops->stop(workers);
    sem_post(&stage.go);
    for (uint64_t id = 1; id <= 2; id++) {
        struct grammar_job *job = workers->ops->take(workers);
        assert_int_equal(job->id, id);
        grammar_job_end(job);
    }
    assert_true(grammar_is_busy(waiting.grammar)); /* it was not found */
    finish(&first);
    finish(&waiting);
    end(&stage, workers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests_name("mask_workers", tests, set_up, tear_down);
}
