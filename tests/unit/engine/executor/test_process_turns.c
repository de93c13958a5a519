/* Rank processes that compute in turns: what they sample, and what happens to the others if one of
 * them does not give the turn. The program starts itself as such a process. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/executor/process_executor.h"
#include "engine/executor/rank_process.h"
#include "engine/executor/step_turns.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MODEL_PATH GOLDEN_DIR "/tiny-f32.gguf"

enum { NUM_STEPS = 24, PROMPT_TOKENS = 7, BLOCK_SIZE = 16, NUM_BLOCKS = 4, VOCAB = 320 };

static const char *const arguments[] = {"test_process_turns", "rank-process", NULL};

struct fixture {
    struct step_turns *turns;
    int32_t num_ranks, num_stages;
    int32_t first_token; /* of the prompt: what is sampled depends on it */
    struct executor *executor;
    struct batch_arena arenas[EXECUTOR_MAX_STEPS];
    struct step_result results[EXECUTOR_MAX_STEPS];
    struct batch batches[EXECUTOR_MAX_STEPS];
    int32_t sampled[NUM_STEPS];
    pthread_t thread;
    int status; /* of the wait for a step */
    struct error err;
};

static struct process_executor_config config_of(const struct fixture *f) {
    return (struct process_executor_config){
        .program = "/proc/self/exe",
        .argv = arguments,
        .model_path = MODEL_PATH,
        .turns = f->turns,
        .executor = {.device = "cpu",
                     .dtype = DTYPE_AUTO,
                     .kv_type = KV_AUTO,
                     .quantization = DTYPE_NONE,
                     .num_threads = 2,
                     .num_ranks = f->num_ranks,
                     .num_stages = f->num_stages,
                     .device_timeout_s = 2,
                     .limits = {.max_num_seqs = 1,
                                .max_num_batched_tokens = BLOCK_SIZE,
                                .max_model_len = NUM_BLOCKS * BLOCK_SIZE,
                                .block_size = BLOCK_SIZE,
                                .vocab_size = VOCAB,
                                .hidden_size = 64}},
    };
}

static void start(struct fixture *f) {
    const struct process_executor_config config = config_of(f);
    struct executor_info info;
    if (process_executor_create(&config, &info, &f->executor, &f->err) != 0)
        fail_msg("%s", f->err.message);
    const struct batch_capacity capacity = {.num_tokens = BLOCK_SIZE,
                                            .num_seqs = 1,
                                            .num_table_blocks = NUM_BLOCKS,
                                            .num_sample_rows = 1,
                                            .vocab_size = VOCAB,
                                            .num_blocks = info.limits.num_blocks};
    for (int i = 0; i < EXECUTOR_MAX_STEPS; i++) {
        void *memory;
        assert_int_equal(f->executor->ops->step_memory(f->executor, &capacity, &memory), 0);
        step_memory_bind(&capacity, memory, &f->arenas[i], &f->results[i]);
    }
}

static void stop(struct fixture *f) {
    f->executor->ops->destroy(f->executor);
}

/* --- Steps: a prompt, then the token that the step before samples --- */

static void build(struct fixture *f, int index, bool ahead) {
    struct batch_arena *arena = &f->arenas[index % EXECUTOR_MAX_STEPS];
    int32_t first = index == 0 ? 0 : PROMPT_TOKENS + index - 1, end = PROMPT_TOKENS + index;
    *arena->counts = (struct batch_counts){.num_tokens = end - first,
                                           .num_seqs = 1,
                                           .max_blocks_per_seq = NUM_BLOCKS,
                                           .has_token_rows = ahead,
                                           .num_sample_rows = 1};
    for (int32_t position = first; position < end; position++) {
        int32_t t = position - first;
        arena->token_ids[t] = index == 0 ? f->first_token + 11 * t
                              : ahead    ? 0
                                         : f->sampled[index - 1];
        arena->token_rows[t] = ahead ? 0 : -1;
        arena->positions[t] = arena->slot_mapping[t] = position;
    }
    arena->query_start[0] = 0;
    arena->query_start[1] = end - first;
    arena->context_lens[0] = end;
    for (int32_t b = 0; b < NUM_BLOCKS; b++)
        arena->block_tables[b] = b;
    arena->logit_rows[0] = end - first - 1;
    arena->sample_rows[0] = (struct sample_row){.target = SAMPLE_NO_TARGET,
                                                .num_logprobs = -1,
                                                .seed = 5,
                                                .position = (uint64_t)index,
                                                .mask = SAMPLE_NO_MASK,
                                                .settings = SAMPLING_SETTINGS_NEUTRAL};
}

static void submit(struct fixture *f, int index, bool ahead) {
    int place = index % EXECUTOR_MAX_STEPS;
    build(f, index, ahead);
    f->batches[place] = batch_arena_view(&f->arenas[place]);
    f->executor->ops->submit(f->executor, &f->batches[place], &f->results[place]);
}

static void wait_for(struct fixture *f, int index) {
    f->status = f->executor->ops->wait(f->executor, &f->err);
    f->sampled[index] = f->results[index % EXECUTOR_MAX_STEPS].rows[0].token;
}

/* Two steps are in flight, unless stages compute different ones at the same time. */
static void *run(void *argument) {
    struct fixture *f = argument;
    bool ahead = f->num_stages == 1;
    f->status = 0;
    submit(f, 0, false);
    for (int i = 1; i < NUM_STEPS && f->status == 0; i++) {
        if (ahead)
            submit(f, i, true);
        wait_for(f, i - 1);
        if (!ahead)
            submit(f, i, false);
    }
    if (f->status == 0)
        wait_for(f, NUM_STEPS - 1);
    return NULL;
}

static void *wait_for_first(void *argument) {
    wait_for(argument, 0);
    return NULL;
}

static void begin(struct fixture *f, void *(*function)(void *)) {
    assert_int_equal(pthread_create(&f->thread, NULL, function, f), 0);
}

static void end(const struct fixture *f) {
    assert_int_equal(pthread_join(f->thread, NULL), 0);
}

static void run_alone(const struct fixture *like, int32_t *sampled) {
    struct fixture f = *like;
    f.turns = NULL;
    start(&f);
    run(&f);
    assert_int_equal(f.status, 0);
    memcpy(sampled, f.sampled, sizeof(f.sampled));
    stop(&f);
}

/* --- Two executors, and this process as a third that takes turns --- */

enum { OWN_SLOT, NUM_EXECUTORS = 2 };

struct pair {
    struct step_turns *turns;
    struct fixture executors[NUM_EXECUTORS];
};

static void start_pair(struct pair *pair, int32_t num_ranks, int32_t num_stages) {
    struct error err = {0};
    pair->turns = step_turns_create(&err);
    assert_non_null(pair->turns);
    assert_int_equal(step_turns_add(pair->turns, &err), OWN_SLOT);
    for (int i = 0; i < NUM_EXECUTORS; i++) {
        pair->executors[i] = (struct fixture){.turns = pair->turns,
                                              .num_ranks = num_ranks,
                                              .num_stages = num_stages,
                                              .first_token = 3 + 50 * i};
        start(&pair->executors[i]);
    }
}

static void stop_pair(struct pair *pair) {
    for (int i = 0; i < NUM_EXECUTORS; i++)
        stop(&pair->executors[i]);
    step_turns_remove(pair->turns, OWN_SLOT);
    step_turns_destroy(pair->turns); /* the others are free too */
}

static bool is_waiting(const struct pair *pair, int index) {
    return step_turns_is_waiting(pair->turns, 1 + index);
}

static void submit_and_await_waiting(struct pair *pair, int index) {
    submit(&pair->executors[index], 0, false);
    while (!is_waiting(pair, index))
        nanosleep(&(struct timespec){.tv_nsec = CLOCK_NS_PER_MS}, NULL);
}

static void run_pair(struct pair *pair) {
    for (int i = 0; i < NUM_EXECUTORS; i++)
        begin(&pair->executors[i], run);
    for (int i = 0; i < NUM_EXECUTORS; i++) {
        int32_t alone[NUM_STEPS];
        end(&pair->executors[i]);
        assert_int_equal(pair->executors[i].status, 0);
        run_alone(&pair->executors[i], alone);
        assert_memory_equal(pair->executors[i].sampled, alone, sizeof(alone));
    }
}

static void test_what_is_sampled_in_turns(void **state) {
    static const int32_t divisions[][2] = {{1, 1}, {2, 1}, {1, 2}};
    for (int i = 0; i < 3; i++) {
        struct pair pair;
        start_pair(&pair, divisions[i][0], divisions[i][1]);
        run_pair(&pair);
        assert_memory_not_equal(pair.executors[0].sampled, pair.executors[1].sampled,
                                sizeof(pair.executors[0].sampled));
        stop_pair(&pair);
    }
}

/* Their timeout is 2 s. */
static void test_waiting_for_the_turn_is_not_hanging(void **state) {
    struct pair pair;
    start_pair(&pair, 1, 1);
    step_turns_take(pair.turns, OWN_SLOT);
    for (int i = 0; i < NUM_EXECUTORS; i++) {
        submit_and_await_waiting(&pair, i);
        begin(&pair.executors[i], wait_for_first);
    }
    nanosleep(&(struct timespec){.tv_sec = 4}, NULL);
    assert_true(is_waiting(&pair, 0) && is_waiting(&pair, 1));
    step_turns_give(pair.turns, OWN_SLOT, 0);
    for (int i = 0; i < NUM_EXECUTORS; i++) {
        end(&pair.executors[i]);
        assert_int_equal(pair.executors[i].status, 0);
    }
    stop_pair(&pair);
}

/* The first one's turn comes when it is dead or stopped already. */
static void test_one_that_does_not_give_the_turn(void **state) {
    static const int signals[] = {SIGKILL, SIGSTOP};
    for (int i = 0; i < 2; i++) {
        struct pair pair;
        struct error err = {0};
        start_pair(&pair, 1, 1);
        step_turns_take(pair.turns, OWN_SLOT);
        submit_and_await_waiting(&pair, 0);
        submit_and_await_waiting(&pair, 1);
        begin(&pair.executors[1], wait_for_first);
        struct executor *first = pair.executors[0].executor;
        siginfo_t seen;
        kill(process_executor_pid(first), signals[i]);
        assert_int_equal(
            waitid(P_PID, (id_t)process_executor_pid(first), &seen, WEXITED | WSTOPPED | WNOWAIT),
            0);
        step_turns_give(pair.turns, OWN_SLOT, 0);
        assert_false(is_waiting(&pair, 0));
        assert_true(is_waiting(&pair, 1));
        wait_for_first(&pair.executors[0]);
        assert_int_equal(pair.executors[0].err.code, ERROR_RESTART);
        end(&pair.executors[1]);
        assert_int_equal(pair.executors[1].status, 0);
        assert_int_equal(first->ops->restart(first, &err), 0);
        run_pair(&pair);
        stop_pair(&pair);
    }
}

static void test_what_needs_no_turn(void **state) {
    struct pair pair;
    struct error err = {0};
    start_pair(&pair, 1, 1);
    struct fixture *f = &pair.executors[0];
    const struct executor_ops *ops = f->executor->ops;
    step_turns_take(pair.turns, OWN_SLOT);
    for (int i = 0; i < EXECUTOR_MAX_STEPS; i++) { /* without tokens */
        f->batches[i] = batch_arena_view(&f->arenas[i]);
        ops->submit(f->executor, &f->batches[i], &f->results[i]);
    }
    for (int i = 0; i < EXECUTOR_MAX_STEPS; i++)
        assert_int_equal(ops->wait(f->executor, &err), 0);
    assert_int_equal(ops->check(f->executor, &err), 0);
    ops->sleep(f->executor, true);
    assert_int_equal(ops->wake(f->executor, &err), 0);
    step_turns_give(pair.turns, OWN_SLOT, 0);
    run_pair(&pair);
    stop_pair(&pair);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_sampled_in_turns),
        cmocka_unit_test(test_waiting_for_the_turn_is_not_hanging),
        cmocka_unit_test(test_one_that_does_not_give_the_turn),
        cmocka_unit_test(test_what_needs_no_turn),
    };
    if (argc > 1 && strcmp(argv[1], "rank-process") == 0)
        return rank_process_is_expected() ? rank_process_run() : 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
