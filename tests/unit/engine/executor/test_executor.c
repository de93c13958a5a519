/* The whole engine on a small real model: what a request gets must not depend on who shares its
 * steps, on how often it lost its blocks, or on how many steps are in flight; nor, but for
 * rounding, on how many ranks compute it, and on how many stages not at all. test_executor [DEVICE
 * TYPE]: cpu-ref by default. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "engine/executor/executor.h"
#include "kernels/kv_type.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define MODEL_PATH GOLDEN_DIR "/tiny-f32.gguf"
#define MAX_MODEL_LEN 64
#define NUM_REQUESTS 8
#define FIRST_POOLED (NUM_REQUESTS - 2) /* a mean and a last state, at the end of the queue */
#define NUM_TOKENS 30
#define HIDDEN_SIZE 64
#define MAX_RANKS 3

static const char *device = "cpu-ref";
static enum dtype dtype = DTYPE_F32;
static int32_t num_ranks = 1, num_stages = 1;

struct fixture {
    struct model *model;
    struct tokenizer *tokenizer;
    struct executor *executor;
    struct executor_info info;
    struct engine *engine;
};

static void wake(void *context) {
}

static struct executor_config small_config(const struct model *model, size_t kv_memory_bytes) {
    return (struct executor_config){
        .device = device,
        .dtype = dtype,
        .batch_invariant = true,
        .gpu_memory_utilization = 0.1,
        .quantization = DTYPE_NONE,
        .num_threads = 1,
        .num_ranks = num_ranks,
        .num_stages = num_stages,
        .kv_type = kv_type_of_dtype(dtype),
        .kv_memory_bytes = kv_memory_bytes,
        .limits = {.max_num_seqs = NUM_REQUESTS,
                   .max_num_batched_tokens = 16,
                   .max_model_len = MAX_MODEL_LEN,
                   .block_size = 16,
                   .vocab_size = model->config.vocab_size,
                   .hidden_size = model->config.hidden_size},
    };
}

static void start(struct fixture *f, size_t kv_memory_bytes, bool async_scheduling) {
    struct error err = {0};
    if (model_open(MODEL_PATH, &f->model, &err) != 0 ||
        tokenizer_open(f->model, &f->tokenizer, &err) != 0)
        fail_msg("%s", err.message);
    const struct executor_config requested = small_config(f->model, kv_memory_bytes);
    if (executor_create(f->model, &requested, &f->info, &f->executor, &err) != 0)
        fail_msg("%s", err.message);
    struct engine_config config = {
        .core.schedule.kv.limits = &f->info.limits,
        .max_queued_requests = 100,
        .max_queued_tokens = 10000,
        .core.async_scheduling = async_scheduling,
        .core.num_stages = f->info.num_stages,
        .wake = wake,
    };
    if (engine_create(&config, f->executor, f->tokenizer, &f->engine, &err) != 0)
        fail_msg("%s", err.message);
}

static void stop(struct fixture *f) {
    engine_destroy(f->engine);
    f->executor->ops->destroy(f->executor);
    tokenizer_close(f->tokenizer);
    model_close(f->model);
}

static struct request *make_request(const struct fixture *f, int index) {
    int32_t prompt[NUM_REQUESTS + 20], num_prompt_tokens = 20 + index;
    for (int32_t i = 0; i < num_prompt_tokens; i++)
        prompt[i] = (i * 7 + index * 13 + 3) % f->model->config.vocab_size;
    struct sampling_params params = {
        .num_choices = 1,
        .max_tokens = NUM_TOKENS,
        .settings.temperature = index % 2 == 0 ? 0.9f : 0,
        .settings.top_p = 0.95f,
        .settings.repetition_penalty = index % 3 == 0 ? 1.2f : 1,
        .settings.frequency_penalty = index % 3 == 1 ? 0.5f : 0,
        .seed = 1000 + (uint64_t)index,
        .num_logprobs = 2,
        .num_prompt_logprobs = 1,
        .ignore_eos = true,
    };
    if (index >= FIRST_POOLED) {
        params.pooling = index == FIRST_POOLED ? POOLING_MEAN : POOLING_LAST;
        params.max_tokens = 0;
        params.num_prompt_logprobs = -1;
    }
    struct request *request = request_create(prompt, num_prompt_tokens, &params);
    assert_non_null(request);
    return request;
}

struct answer {
    int32_t tokens[NUM_TOKENS];
    float logprobs[NUM_TOKENS];
    int32_t num_tokens;
    double prompt_logprob; /* sum over the prompt */
    float embedding[HIDDEN_SIZE];
    int32_t num_dimensions;
};

static void read_event(const struct token_event *event, struct answer *answer) {
    if (event->kind == TOKEN_EVENT_EMBEDDING) {
        assert_int_equal(event->num_dimensions, HIDDEN_SIZE);
        answer->num_dimensions = event->num_dimensions;
        memcpy(answer->embedding, event->embedding, sizeof(answer->embedding));
    }
    for (int32_t i = 0; i < event->num_tokens; i++) {
        const struct token_record *record = &event->tokens[i];
        if (event->kind == TOKEN_EVENT_PROMPT) {
            answer->prompt_logprob += record->num_top > 0 ? record->logprob : 0;
            continue;
        }
        assert_in_range(answer->num_tokens, 0, NUM_TOKENS - 1);
        answer->tokens[answer->num_tokens] = record->token;
        answer->logprobs[answer->num_tokens++] = record->logprob;
    }
}

static void read_to_end(struct request *request, struct answer *answer) {
    struct token_buffer buffer = {0};
    struct token_event event = {.finish = FINISH_NONE};
    memset(answer, 0, sizeof(*answer));
    while (event.finish == FINISH_NONE) {
        usleep(500);
        token_stream_take(&request->stream, &buffer);
        while (token_buffer_next(&buffer, &event))
            read_event(&event, answer);
    }
    bool pooled = request->params.pooling != POOLING_NONE;
    assert_int_equal(event.finish, pooled ? FINISH_STOP : FINISH_LENGTH);
    assert_int_equal(answer->num_tokens, pooled ? 0 : NUM_TOKENS);
    assert_int_equal(answer->num_dimensions, pooled ? HIDDEN_SIZE : 0);
    token_buffer_finish(&buffer);
}

/* Submits `count` requests from `first` on, all at once. Returns the number of preemptions. */
static uint64_t run(size_t kv_memory_bytes, bool async_scheduling, int first, int count,
                    struct answer *answers) {
    struct fixture f;
    start(&f, kv_memory_bytes, async_scheduling);
    struct request *requests[NUM_REQUESTS];
    for (int i = 0; i < count; i++) {
        requests[i] = make_request(&f, first + i);
        assert_int_equal(engine_submit(f.engine, requests[i]), SUBMIT_OK);
    }
    for (int i = 0; i < count; i++)
        read_to_end(requests[i], &answers[i]);
    struct engine_stats stats;
    do
        engine_get_stats(f.engine, &stats);
    while (!engine_is_idle(f.engine));
    engine_get_stats(f.engine, &stats);
    assert_int_equal(stats.num_used_blocks, 0);
    for (int i = 0; i < count; i++)
        request_unref(requests[i]);
    stop(&f);
    return stats.preemptions;
}

static size_t sequence_bytes(void) {
    struct fixture f;
    start(&f, 0, false);
    const struct executor_memory *memory = &f.info.memory;
    size_t bytes = memory->kv_bytes / (size_t)f.info.limits.num_blocks * MAX_MODEL_LEN / 16;
    if (!f.info.has_dedicated_memory)
        assert_int_equal(f.info.limits.num_blocks, NUM_REQUESTS * MAX_MODEL_LEN / 16);
    assert_true(memory->weight_bytes > 0 && memory->workspace_bytes > 0);
    stop(&f);
    return bytes;
}

static void test_alone_together_and_preempted(void **state) {
    static struct answer alone[NUM_REQUESTS], together[NUM_REQUESTS], tight[NUM_REQUESTS];
    size_t enough = sequence_bytes() * NUM_REQUESTS, little = sequence_bytes() * 5 / 4;
    for (int i = 0; i < NUM_REQUESTS; i++)
        run(enough, false, i, 1, &alone[i]);
    for (int async_scheduling = 0; async_scheduling < 2; async_scheduling++) {
        assert_int_equal(run(enough, async_scheduling, 0, NUM_REQUESTS, together), 0);
        assert_memory_equal(alone, together, sizeof(alone));
        assert_true(run(little, async_scheduling, 0, NUM_REQUESTS, tight) > 0);
        assert_memory_equal(alone, tight, sizeof(alone));
    }
}

static void assert_near(double actual, double expected) {
    if (!(fabs(actual - expected) <= 1e-4 * (1 + fabs(expected))))
        fail_msg("%.9g is not near %.9g", actual, expected);
}

/* The same bits from run to run; what is computed of a prompt is that of one rank but for the order
 * of sums. */
static void test_several_ranks(void **state) {
    static struct answer one[NUM_REQUESTS], alone[NUM_REQUESTS], actual[NUM_REQUESTS];
    size_t enough = sequence_bytes() * NUM_REQUESTS, little = sequence_bytes() * 5 / 4;
    run(enough, true, 0, NUM_REQUESTS, one);
    for (num_ranks = 2; num_ranks <= MAX_RANKS; num_ranks++) {
        for (int i = 0; i < NUM_REQUESTS; i++)
            run(enough, false, i, 1, &alone[i]);
        for (int async_scheduling = 0; async_scheduling < 2; async_scheduling++) {
            run(enough, async_scheduling, 0, NUM_REQUESTS, actual);
            assert_memory_equal(actual, alone, sizeof(alone));
        }
        /* with as many blocks, whatever they take: ranks may have the same KV head */
        assert_true(run(num_ranks == 2 ? little : little * 3 / 2, true, 0, NUM_REQUESTS, actual) >
                    0);
        assert_memory_equal(actual, alone, sizeof(alone));
        for (int i = 0; i < NUM_REQUESTS; i++) {
            assert_near(alone[i].prompt_logprob, one[i].prompt_logprob);
            assert_near(alone[i].logprobs[0], one[i].logprobs[0]);
            for (int d = 0; d < HIDDEN_SIZE; d++)
                assert_near(alone[i].embedding[d], one[i].embedding[d]);
        }
    }
    num_ranks = 1;
}

/* Stages change no bit, of one rank's results and of two's. */
static void test_several_stages(void **state) {
    static struct answer one[NUM_REQUESTS], actual[NUM_REQUESTS];
    for (num_ranks = 1; num_ranks <= 2; num_ranks++) {
        num_stages = 1;
        size_t enough = sequence_bytes() * NUM_REQUESTS, little = sequence_bytes() * 5 / 4;
        run(enough, true, 0, NUM_REQUESTS, one);
        num_stages = 2;
        for (int async_scheduling = 0; async_scheduling < 2; async_scheduling++) {
            run(enough, async_scheduling, 0, NUM_REQUESTS, actual);
            assert_memory_equal(actual, one, sizeof(one));
            assert_true(run(little, async_scheduling, 0, NUM_REQUESTS, actual) > 0);
            assert_memory_equal(actual, one, sizeof(one));
        }
    }
    num_ranks = num_stages = 1;
}

static void test_too_little_memory(void **state) {
    struct model *model;
    struct executor *executor = NULL;
    struct executor_info info;
    struct error err = {0};
    assert_int_equal(model_open(MODEL_PATH, &model, &err), 0);
    const struct executor_config config = small_config(model, 1000);
    assert_int_equal(executor_create(model, &config, &info, &executor, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "--kv-cache-memory-bytes"));
    assert_null(executor);
    model_close(model);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_together_and_preempted),
        cmocka_unit_test(test_too_little_memory),
        cmocka_unit_test(test_several_ranks), /* of the CPU only: the last two */
        cmocka_unit_test(test_several_stages),
    };
    size_t num_tests = sizeof(tests) / sizeof(tests[0]);
    if (argc == 3) {
        device = argv[1];
        dtype = strcmp(argv[2], "f16") == 0 ? DTYPE_F16 : DTYPE_BF16;
    }
    num_tests -= strncmp(device, "cpu", 3) == 0 ? 0 : 2;
    return _cmocka_run_group_tests("tests", tests, num_tests, NULL, NULL);
}
