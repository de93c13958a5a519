/* A rank process that answers wrongly is as good as one that died. The program starts itself as
 * such a process, which says over the socket and in the memory of the steps what a test wants. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/executor/rank_message.h"
#include "engine/executor/process_executor.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define VOCAB_SIZE 320
#define NUM_ROWS 3 /* the last one wants no logprobs */
#define NUM_LOGPROBS 2
#define NUM_DRAFTS 2

/* --- The process --- */

struct answer {
    struct rank_message *message;
    struct sample_output *rows;
    int32_t *drafts;
};

static void say_nothing_wrong(const struct answer *a) {
}
static void say_ready(const struct answer *a) {
    a->message->kind = RANK_READY;
}
static void say_submit(const struct answer *a) {
    a->message->kind = RANK_SUBMIT;
}
static void say_no_kind(const struct answer *a) {
    a->message->kind = (enum rank_message_kind)99;
}
static void leave_error_open(const struct answer *a) {
    struct error *err = &a->message->done.error;
    err->code = ERROR_DEVICE;
    memset(err->message, 'x', sizeof(err->message));
}
static void add_row(const struct answer *a) {
    a->message->done.num_sample_rows++;
}
static void take_row(const struct answer *a) {
    a->message->done.num_sample_rows--;
}
static void have_negative_rows(const struct answer *a) {
    a->message->done.num_sample_rows = -1;
}
static void exceed_vocabulary(const struct answer *a) {
    a->rows[2].token = VOCAB_SIZE;
}
static void have_negative_token(const struct answer *a) {
    a->rows[0].token = -1;
}
static void add_top(const struct answer *a) {
    a->rows[1].num_top = NUM_LOGPROBS + 1;
}
static void take_top(const struct answer *a) {
    a->rows[1].num_top = NUM_LOGPROBS - 1;
}
static void have_negative_top(const struct answer *a) {
    a->rows[0].num_top = -1;
}
static void exceed_vocabulary_at_top(const struct answer *a) {
    a->rows[1].top_tokens[NUM_LOGPROBS - 1] = VOCAB_SIZE;
}
static void have_negative_top_token(const struct answer *a) {
    a->rows[0].top_tokens[0] = -7;
}
static void exceed_vocabulary_in_draft(const struct answer *a) {
    a->drafts[NUM_DRAFTS - 1] = VOCAB_SIZE;
}
static void have_negative_draft(const struct answer *a) {
    a->drafts[0] = -1;
}
/* Nothing is said of it, since nobody asked. */
static void fill_what_nobody_reads(const struct answer *a) {
    a->drafts[NUM_DRAFTS] = -1;
    a->rows[2].num_top = 1000;
    a->rows[0].top_tokens[NUM_LOGPROBS] = -1;
}

static const struct lie {
    void (*spoil)(const struct answer *answer);
    const char *why; /* NULL: nothing is wrong */
} lies[] = {
    {say_nothing_wrong, NULL},
    {fill_what_nobody_reads, NULL},
    {say_ready, "a message of kind 6"},
    {say_submit, "a message of kind 2"},
    {say_no_kind, "not a message"},
    {leave_error_open, "an error has no end"},
    {add_row, "4 rows came for a step of 3"},
    {take_row, "2 rows came for a step of 3"},
    {have_negative_rows, "-1 rows came for a step of 3"},
    {exceed_vocabulary, "row 2 has token 320 of 320"},
    {have_negative_token, "row 0 has token -1 of 320"},
    {add_top, "row 1 has 3 top logprobs and wants 2"},
    {take_top, "row 1 has 1 top logprobs and wants 2"},
    {have_negative_top, "row 0 has -1 top logprobs and wants 2"},
    {exceed_vocabulary_at_top, "row 1 has top token 320 of 320"},
    {have_negative_top_token, "row 0 has top token -7 of 320"},
    {exceed_vocabulary_in_draft, "draft 1 is token 320 of 320"},
    {have_negative_draft, "draft 0 is token -1 of 320"},
};
#define NUM_LIES ((int)(sizeof(lies) / sizeof(lies[0])))

/* Where messages come that nobody waits for. */
#define WHILE_IDLE "idle"
#define WHILE_STARTING "starting"
#define WITH_READY "ready" /* and the number of what is wrong with it */
#define WITH_FAILED "failed"
/* What else a process does that breaks its word. */
#define WRITES_BATCH "writes"
#define TAKES_BATCH "takes"
#define ROUNDS_ANEW "rounds" /* in every process otherwise */

static void have_endless_text(struct executor_info *info) {
    memset(info->numerics, 'x', sizeof(info->numerics));
}
static void have_no_blocks(struct executor_info *info) {
    info->limits.num_blocks = 0;
}
static void have_too_many_blocks(struct executor_info *info) {
    info->limits.num_blocks = INT32_MAX;
}
static void have_negative_host_blocks(struct executor_info *info) {
    info->limits.num_host_blocks = -1;
}
static void have_other_vocabulary(struct executor_info *info) {
    info->limits.vocab_size++;
}
static void have_more_sequences(struct executor_info *info) {
    info->limits.max_num_seqs = 1 << 20;
}
static void have_fewer_tokens(struct executor_info *info) {
    info->limits.max_num_batched_tokens = 3;
}
static void have_no_ranks(struct executor_info *info) {
    info->num_ranks = 0;
}
static void have_many_ranks(struct executor_info *info) {
    info->num_ranks = BACKEND_MAX_RANKS + 1;
}
static void have_no_type(struct executor_info *info) {
    info->kv_type = (enum kv_type)77;
}
static void have_adapters(struct executor_info *info) {
    info->lora = (struct lora_shape){.num_slots = 2, .max_rank = 16, .dtype = DTYPE_F16};
}

static const struct boast {
    void (*spoil)(struct executor_info *info);
    const char *why;
} boasts[] = {
    {have_endless_text, "a text has no end"},
    {have_no_blocks, "0 blocks"},
    {have_too_many_blocks, "2147483647 blocks"},
    {have_negative_host_blocks, "-1 on the host"},
    {have_other_vocabulary, "not those requested"},
    {have_more_sequences, "1048576 sequences"},
    {have_fewer_tokens, "3 tokens a step"},
    {have_no_ranks, "0 ranks"},
    {have_many_ranks, "ranks"},
    {have_no_type, "no type"},
    {have_adapters, "2 adapters of rank 16"},
};
#define NUM_BOASTS ((int)(sizeof(boasts) / sizeof(boasts[0])))

static void map_step(const struct batch_capacity *capacity, struct batch_arena *arena,
                     struct step_result *result) {
    const struct step_files files = {RANK_BATCHES_FD, RANK_RESULTS_FD};
    struct step_mapping mapping;
    if (step_mapping_open(&mapping, capacity, &files) != 0)
        _Exit(1);
    step_memory_bind(capacity, step_mapping_step(&mapping, 0), arena, result);
}

/* What is left of a batch when a process has tried to write to it: its end, or nothing. */
static void spoil_batch(const struct batch_capacity *capacity, const char *how,
                        struct batch_arena *arena) {
    void *writable = mmap(NULL, step_result_offset(capacity), PROT_READ | PROT_WRITE, MAP_SHARED,
                          RANK_BATCHES_FD, 0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *first = (char *)arena->counts;
    signal(SIGSEGV, SIG_DFL); /* a sanitizer would turn it into an exit */
    if (strcmp(how, WRITES_BATCH) == 0)
        arena->sample_rows[0].num_logprobs = 1000;
    else if (writable != MAP_FAILED || mprotect(first, page, PROT_READ | PROT_WRITE) == 0 ||
             ftruncate(RANK_BATCHES_FD, 0) == 0 || ftruncate(RANK_RESULTS_FD, 0) == 0)
        _Exit(2);
}

/* A message of no kind has the size of one that has. */
static void send_any(const struct rank_message *message) {
    if (message->kind <= RANK_DONE)
        rank_message_send(RANK_SOCKET_FD, message);
    else
        send(RANK_SOCKET_FD, message, sizeof(*message), 0);
}

static void answer_wait(const struct step_result *result, const struct lie *lie) {
    struct rank_message message = {.kind = RANK_DONE, .done = {.num_sample_rows = NUM_ROWS}};
    for (int i = 0; i < NUM_ROWS; i++)
        result->rows[i] = (struct sample_output){.token = VOCAB_SIZE - 1,
                                                 .num_top = i < 2 ? NUM_LOGPROBS : 0,
                                                 .top_tokens = {0, VOCAB_SIZE - 1}};
    for (int i = 0; i < NUM_DRAFTS; i++)
        result->drafts[i] = VOCAB_SIZE - 1;
    lie->spoil(&(struct answer){&message, result->rows, result->drafts});
    send_any(&message);
}

static void answer_start(struct rank_message *message, const char *how) {
    const struct serving_limits limits = message->start.config.limits;
    *message = (struct rank_message){.kind = RANK_READY};
    message->info.limits = limits;
    message->info.limits.num_blocks = 8;
    message->info.limits.max_logit_rows = 1;
    message->info.num_ranks = 1;
    message->info.num_stages = 1;
    if (strcmp(how, ROUNDS_ANEW) == 0)
        snprintf(message->info.numerics, sizeof(message->info.numerics), "those of %d", getpid());
    if (strncmp(how, WITH_READY, strlen(WITH_READY)) == 0)
        boasts[atoi(how + strlen(WITH_READY))].spoil(&message->info);
    if (strcmp(how, WHILE_STARTING) == 0)
        *message = (struct rank_message){.kind = RANK_DONE};
    if (strcmp(how, WITH_FAILED) == 0) {
        *message = (struct rank_message){.kind = RANK_FAILED, .done = {.error = {ERROR_MODEL, ""}}};
        memset(message->done.error.message, 'x', sizeof(message->done.error.message));
    }
    rank_message_send(RANK_SOCKET_FD, message);
}

static int run_process(const char *how) {
    static struct rank_message message;
    struct batch_arena arena;
    struct step_result result = {0};
    const struct lie *lie = &lies[atoi(how)];
    const struct rank_message unasked = {.kind = RANK_DONE};
    while (rank_message_receive(RANK_SOCKET_FD, &message) == 0) {
        if (message.kind == RANK_START) {
            answer_start(&message, how);
        } else if (message.kind == RANK_MEMORY) {
            map_step(&message.capacity, &arena, &result);
            if (strcmp(how, WRITES_BATCH) == 0 || strcmp(how, TAKES_BATCH) == 0)
                spoil_batch(&message.capacity, how, &arena);
            if (strcmp(how, WHILE_IDLE) == 0)
                rank_message_send(RANK_SOCKET_FD, &unasked);
        } else if (message.kind == RANK_WAIT) {
            answer_wait(&result, lie);
        }
    }
    return 0;
}

/* --- The engine's side --- */

struct fixture {
    struct executor *executor;
    struct batch_arena arena;
    struct step_result result;
    struct batch batch;
};

static int create(struct fixture *f, const char *how, struct error *err) {
    static const char *argv[] = {"test_rank_answers", NULL, NULL}; /* outlive the executor */
    argv[1] = how;
    const struct process_executor_config config = {
        .program = "/proc/self/exe",
        .argv = argv,
        .model_path = "",
        .executor = {.device = "cpu",
                     .limits = {.max_num_seqs = 1,
                                .max_num_batched_tokens = 4,
                                .max_model_len = 16,
                                .block_size = 16,
                                .vocab_size = VOCAB_SIZE}},
    };
    struct executor_info info;
    return process_executor_create(&config, &info, &f->executor, err);
}

static void start(struct fixture *f, const char *how) {
    const struct batch_capacity capacity = {.num_tokens = 4,
                                            .num_seqs = 1,
                                            .num_table_blocks = 1,
                                            .num_sample_rows = NUM_ROWS,
                                            .vocab_size = VOCAB_SIZE,
                                            .num_blocks = 8,
                                            .num_draft_tokens = NUM_DRAFTS + 1};
    struct error err = {0};
    if (create(f, how, &err) != 0)
        fail_msg("%s", err.message);
    void *memory = NULL;
    assert_int_equal(f->executor->ops->step_memory(f->executor, &capacity, &memory), 0);
    assert_non_null(memory);
    step_memory_bind(&capacity, memory, &f->arena, &f->result);
    f->arena.counts->num_sample_rows = NUM_ROWS;
    for (int i = 0; i < NUM_ROWS; i++)
        f->arena.sample_rows[i] = (struct sample_row){.target = SAMPLE_NO_TARGET,
                                                      .num_logprobs = i < 2 ? NUM_LOGPROBS : -1};
    f->arena.counts->num_draft_requests = 1;
    f->arena.draft_requests[0] = (struct draft_request){.num_inputs = 1, .num_drafts = NUM_DRAFTS};
    f->batch = batch_arena_view(&f->arena);
}

static void expect_lost(struct fixture *f, const struct error *err, const char *why) {
    assert_int_equal(err->code, ERROR_RESTART);
    if (strstr(err->message, "the rank process answers wrongly: ") == NULL ||
        strstr(err->message, why) == NULL)
        fail_msg("%s, not %s", err->message, why);
    assert_int_equal(process_executor_pid(f->executor), 0);
}

static void expect_answer(const struct lie *lie) {
    struct fixture f;
    struct error err = {0};
    char how[16];
    snprintf(how, sizeof(how), "%d", (int)(lie - lies));
    start(&f, how);
    f.executor->ops->submit(f.executor, &f.batch, &f.result);
    int status = f.executor->ops->wait(f.executor, &err);
    if (lie->why != NULL) {
        assert_int_equal(status, -1);
        expect_lost(&f, &err, lie->why);
        assert_int_equal(f.result.num_sample_rows, 0);
    } else {
        if (status != 0)
            fail_msg("%s", err.message);
        assert_int_equal(f.result.num_sample_rows, NUM_ROWS);
        assert_int_equal(f.result.rows[NUM_ROWS - 1].token, VOCAB_SIZE - 1);
    }
    f.executor->ops->destroy(f.executor);
}

static void test_answers(void **state) {
    for (int i = 0; i < NUM_LIES; i++)
        expect_answer(&lies[i]);
}

/* Until the process has done what it does. */
static void expect_end(struct fixture *f, struct error *err) {
    while (f->executor->ops->check(f->executor, err) == 0)
        nanosleep(&(struct timespec){.tv_nsec = CLOCK_NS_PER_MS}, NULL);
}

static void test_batches_cannot_be_written_to(void **state) {
    struct fixture f;
    struct error err = {0};
    start(&f, WRITES_BATCH);
    expect_end(&f, &err);
    assert_int_equal(err.code, ERROR_RESTART);
    assert_non_null(strstr(err.message, "signal 11"));
    assert_int_equal(f.arena.sample_rows[0].num_logprobs, NUM_LOGPROBS);
    f.executor->ops->destroy(f.executor);
}

/* Neither by another mapping, nor by taking the memory away. */
static void test_batches_stay(void **state) {
    struct fixture f;
    struct error err = {0};
    start(&f, TAKES_BATCH);
    f.executor->ops->submit(f.executor, &f.batch, &f.result);
    if (f.executor->ops->wait(f.executor, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(f.arena.sample_rows[0].num_logprobs, NUM_LOGPROBS);
    f.executor->ops->destroy(f.executor);
}

static void expect_no_start(const char *how, const char *why) {
    struct fixture f;
    struct error err = {0};
    assert_int_equal(create(&f, how, &err), -1);
    assert_null(f.executor);
    assert_int_equal(err.code, ERROR_DEVICE);
    if (strstr(err.message, why) == NULL)
        fail_msg("%s, not %s", err.message, why);
}

static void test_starts_with_wrong_sizes(void **state) {
    for (int i = 0; i < NUM_BOASTS; i++) {
        char how[16];
        snprintf(how, sizeof(how), WITH_READY "%d", i);
        expect_no_start(how, boasts[i].why);
    }
    expect_no_start(WITH_FAILED, "an error has no end");
}

static void test_a_small_vocabulary_bounds_the_logprobs(void **state) {
    struct sample_output rows[1] = {{.num_top = 2, .top_tokens = {1, 0}}};
    const struct sample_row requested[1] = {{.target = SAMPLE_NO_TARGET, .num_logprobs = 5}};
    const struct batch batch = {.num_sample_rows = 1, .sample_rows = requested};
    const struct step_result result = {.rows = rows};
    const struct rank_message message = {.kind = RANK_DONE, .done = {.num_sample_rows = 1}};
    struct error err = {0};
    assert_int_equal(rank_message_check_done(&message, &batch, &result, 2, &err), 0);
    assert_int_equal(rank_message_check_done(&message, &batch, &result, 6, &err), -1);
}

static void test_ranked_lists(void **state) {
    struct top_logprob ranked[] = {{9, -1}, {4, -2}};
    float listed[12] = {0};
    struct sample_output rows[1] = {{.num_top = 2}};
    const struct sample_row requested[1] = {
        {.target = SAMPLE_NO_TARGET, .num_listed = 10, .num_ranked = 2, .first_listed_logprob = 2}};
    const struct batch batch = {.num_sample_rows = 1, .sample_rows = requested};
    const struct step_result result = {.rows = rows, .listed_logprobs = listed};
    const struct rank_message message = {.kind = RANK_DONE, .done = {.num_sample_rows = 1}};
    struct error err = {0};
    memcpy(listed + 2, ranked, sizeof(ranked));
    assert_int_equal(rank_message_check_done(&message, &batch, &result, 10, &err), 0);
    assert_int_equal(rank_message_check_done(&message, &batch, &result, 9, &err), -1);
    assert_non_null(strstr(err.message, "row 0 has ranked token 9 of 9"));
    rows[0].num_top = 0; /* the list is as it was */
    assert_int_equal(rank_message_check_done(&message, &batch, &result, 9, &err), 0);
    rows[0].num_top = 1;
    assert_int_equal(rank_message_check_done(&message, &batch, &result, 10, &err), -1);
}

/* Restarts the process that was killed. Returns whether it is told that it rounds otherwise. */
static bool restart_is_told(const char *how) {
    static char log[4096];
    struct fixture f;
    struct error err = {0};
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    assert_true(file != NULL && kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    start(&f, how);
    kill(process_executor_pid(f.executor), SIGKILL);
    expect_end(&f, &err);
    int status = f.executor->ops->restart(f.executor, &err);
    f.executor->ops->destroy(f.executor);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    rewind(file);
    log[fread(log, 1, sizeof(log) - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(status, 0);
    assert_non_null(strstr(log, "the ranks are back"));
    return strstr(log, "the ranks round differently than before: those of ") != NULL;
}

static void test_ranks_that_round_otherwise_after_a_restart(void **state) {
    assert_true(restart_is_told(ROUNDS_ANEW));
    assert_false(restart_is_told("0"));
}

static void test_a_message_that_nobody_waits_for(void **state) {
    struct fixture f;
    struct error err = {0};
    start(&f, WHILE_IDLE);
    while (f.executor->ops->check(f.executor, &err) == 0)
        nanosleep(&(struct timespec){.tv_nsec = CLOCK_NS_PER_MS}, NULL);
    expect_lost(&f, &err, "a message came that nobody waits for");
    f.executor->ops->destroy(f.executor);
}

static void test_a_start_with_a_wrong_answer(void **state) {
    expect_no_start(WHILE_STARTING, "a message came that belongs to no start");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_a_small_vocabulary_bounds_the_logprobs),
        cmocka_unit_test(test_ranked_lists),
        cmocka_unit_test(test_a_message_that_nobody_waits_for),
        cmocka_unit_test(test_a_start_with_a_wrong_answer),
        cmocka_unit_test(test_starts_with_wrong_sizes),
        cmocka_unit_test(test_batches_cannot_be_written_to),
        cmocka_unit_test(test_batches_stay),
        cmocka_unit_test(test_ranks_that_round_otherwise_after_a_restart),
    };
    return argc > 1 ? run_process(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
