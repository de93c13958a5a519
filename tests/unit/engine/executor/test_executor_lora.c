/* Adapters in the whole engine, on a small real model: what a request gets does not depend on which
 * others share its steps, on what is loaded and unloaded meanwhile, or on whether the ranks slept
 * or were lost. The adapters are one of PEFT's with several lora_alpha. The program starts itself
 * as a rank process. test_executor_lora [DEVICE TYPE]: the CPU by default. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "engine/executor/process_executor.h"
#include "engine/executor/rank_process.h"
#include "kernels/kv_type.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL_PATH GOLDEN_DIR "/families/llama.gguf"
#define ADAPTER_PATH GOLDEN_DIR "/adapters/llama-r8"
#define NUM_ADAPTERS 8
#define NUM_REQUESTS 32
#define NUM_TOKENS 12
#define LOADS_PER_ROUND 4
#define NUM_ROUNDS 250
#define MAX_FILE_BYTES 65536

static char folders[NUM_ADAPTERS][64];
static const char *gpu; /* NULL: the CPU */
static enum dtype dtype = DTYPE_F32;

/* --- Files --- */

static size_t read_file(const char *folder, const char *name, char *out) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t length = fread(out, 1, MAX_FILE_BYTES - 1, file);
    fclose(file);
    out[length] = '\0';
    return length;
}

static void write_file(const char *folder, const char *name, const char *data, size_t length) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, length, file), length);
    fclose(file);
}

static void remove_file(const char *folder, const char *name) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    unlink(path);
}

/* lora_alpha is "16" there: each gets two other digits. */
static int make_adapters(void **state) {
    static char config[MAX_FILE_BYTES], tensors[MAX_FILE_BYTES];
    size_t config_length = read_file(ADAPTER_PATH, "adapter_config.json", config);
    size_t length = read_file(ADAPTER_PATH, "adapter_model.safetensors", tensors);
    char *alpha = strstr(config, "\"lora_alpha\": 16");
    assert_non_null(alpha);
    for (int i = 0; i < NUM_ADAPTERS; i++) {
        snprintf(folders[i], sizeof(folders[i]), "/tmp/quire-lora-XXXXXX");
        assert_non_null(mkdtemp(folders[i]));
        alpha[strlen("\"lora_alpha\": ")] = (char)('1' + i);
        write_file(folders[i], "adapter_config.json", config, config_length);
        write_file(folders[i], "adapter_model.safetensors", tensors, length);
    }
    return 0;
}

static int remove_adapters(void **state) {
    for (int i = 0; i < NUM_ADAPTERS; i++) {
        remove_file(folders[i], "adapter_config.json");
        remove_file(folders[i], "adapter_model.safetensors");
        rmdir(folders[i]);
    }
    return 0;
}

/* --- Engines --- */

struct setting {
    const char *device;
    int32_t num_ranks, num_stages;
    bool is_process;
};

struct fixture {
    struct model *model;
    struct tokenizer *tokenizer;
    struct executor *executor;
    struct executor_info info;
    struct engine *engine;
    struct adapter *adapters[NUM_ADAPTERS];
};

static void wake(void *context) {
}

static int create_executor(struct fixture *f, const struct setting *setting, struct error *err) {
    static const char *const arguments[] = {"test_executor_lora", "rank-process", NULL};
    const struct executor_config config = {
        .device = gpu != NULL ? gpu : setting->device,
        .dtype = dtype,
        .batch_invariant = true,
        .gpu_memory_utilization = 0.1,
        .quantization = DTYPE_NONE,
        .num_threads = 1,
        .num_ranks = setting->num_ranks,
        .num_stages = setting->num_stages,
        .kv_type = kv_type_of_dtype(dtype),
        .device_timeout_s = 60,
        .limits = {.max_num_seqs = NUM_REQUESTS,
                   .max_num_batched_tokens = 64,
                   .max_model_len = 64,
                   .block_size = 16,
                   .vocab_size = f->model->config.vocab_size,
                   .hidden_size = f->model->config.hidden_size},
        .lora = {.num_slots = NUM_ADAPTERS + 1, .max_rank = 16, .dtype = DTYPE_AUTO},
    };
    const struct process_executor_config process = {.program = "/proc/self/exe",
                                                    .argv = arguments,
                                                    .model_path = MODEL_PATH,
                                                    .executor = config};
    return setting->is_process ? process_executor_create(&process, &f->info, &f->executor, err)
                               : executor_create(f->model, &config, &f->info, &f->executor, err);
}

static struct adapter *load(struct fixture *f, int index) {
    struct lora_adapter *lora;
    struct error err = {0};
    if (lora_adapter_open(folders[index], f->model, &f->info.lora, &lora, &err) != 0)
        fail_msg("%s", err.message);
    struct adapter *adapter = adapter_create(folders[index], lora);
    assert_int_equal(engine_load_adapter(f->engine, adapter), 0);
    return adapter;
}

static void await_state(const struct adapter *adapter, enum adapter_state state) {
    while (atomic_load(&adapter->state) != state)
        usleep(200);
}

static void start(struct fixture *f, const struct setting *setting) {
    struct error err = {0};
    if (model_open(MODEL_PATH, &f->model, &err) != 0 ||
        tokenizer_open(f->model, &f->tokenizer, &err) != 0 ||
        create_executor(f, setting, &err) != 0)
        fail_msg("%s", err.message);
    assert_true(f->info.memory.adapter_bytes > 0);
    const struct engine_config config = {
        .core = {.schedule.kv = {.limits = &f->info.limits, .caching = true},
                 .lora = f->info.lora,
                 .model = &f->model->config,
                 .async_scheduling = true,
                 .num_stages = f->info.num_stages},
        .max_queued_requests = 100,
        .max_queued_tokens = 10000,
        .wake = wake,
    };
    if (engine_create(&config, f->executor, f->tokenizer, &f->engine, &err) != 0)
        fail_msg("%s", err.message);
    for (int i = 0; i < NUM_ADAPTERS; i++)
        f->adapters[i] = load(f, i);
    for (int i = 0; i < NUM_ADAPTERS; i++)
        await_state(f->adapters[i], ADAPTER_READY);
}

static void stop(struct fixture *f) {
    engine_destroy(f->engine);
    f->executor->ops->destroy(f->executor);
    for (int i = 0; i < NUM_ADAPTERS; i++)
        adapter_unref(f->adapters[i]);
    tokenizer_close(f->tokenizer);
    model_close(f->model);
}

/* Prompts of the same adapter, and of different ones, begin alike. Every ninth has none. */
static struct request *make_request(const struct fixture *f, int index) {
    int32_t prompt[24];
    for (int32_t i = 0; i < 24; i++)
        prompt[i] = (i * 7 + (i < 16 ? 0 : index) + 3) % f->model->config.vocab_size;
    const struct sampling_params params = {
        .num_choices = 1,
        .max_tokens = NUM_TOKENS,
        .settings.temperature = index % 2 == 0 ? 0.9f : 0,
        .settings.top_p = 0.95f,
        .settings.repetition_penalty = 1,
        .seed = 1000 + (uint64_t)index,
        .num_logprobs = 1,
        .num_prompt_logprobs = -1,
        .ignore_eos = true,
    };
    struct request *request = request_create(prompt, 18 + index % 7, &params);
    assert_non_null(request);
    if (index % 9 != 0)
        request_set_adapter(request, f->adapters[index % 9 - 1]);
    return request;
}

struct answer {
    int32_t tokens[NUM_TOKENS];
    float logprobs[NUM_TOKENS];
    int32_t num_tokens;
};

static void read_to_end(struct request *request, struct answer *answer) {
    struct token_buffer buffer = {0};
    struct token_event event = {.finish = FINISH_NONE};
    memset(answer, 0, sizeof(*answer));
    while (event.finish == FINISH_NONE) {
        usleep(200);
        token_stream_take(&request->stream, &buffer);
        while (token_buffer_next(&buffer, &event))
            for (int32_t i = 0; i < event.num_tokens; i++) {
                assert_in_range(answer->num_tokens, 0, NUM_TOKENS - 1);
                answer->tokens[answer->num_tokens] = event.tokens[i].token;
                answer->logprobs[answer->num_tokens++] = event.tokens[i].logprob;
            }
    }
    assert_int_equal(event.finish, FINISH_LENGTH);
    assert_int_equal(answer->num_tokens, NUM_TOKENS);
    token_buffer_finish(&buffer);
}

static void answer_all(struct fixture *f, struct answer *answers) {
    struct request *requests[NUM_REQUESTS];
    for (int i = 0; i < NUM_REQUESTS; i++) {
        requests[i] = make_request(f, i);
        assert_int_equal(engine_submit(f->engine, requests[i]), SUBMIT_OK);
    }
    for (int i = 0; i < NUM_REQUESTS; i++) {
        read_to_end(requests[i], &answers[i]);
        request_unref(requests[i]);
    }
}

static void answer_each(struct fixture *f, struct answer *answers) {
    for (int i = 0; i < NUM_REQUESTS; i++) {
        struct request *request = make_request(f, i);
        assert_int_equal(engine_submit(f->engine, request), SUBMIT_OK);
        read_to_end(request, &answers[i]);
        request_unref(request);
        engine_flush_cache(f->engine, false);
    }
}

static struct answer alone[NUM_REQUESTS], together[NUM_REQUESTS];

static void assert_same(void) {
    assert_memory_equal(alone, together, sizeof(alone));
}

/* Two adapters that give the same answers would show nothing. */
static void assert_all_differ(void) {
    for (int i = 1; i < 9; i++)
        assert_true(memcmp(alone[0].logprobs, alone[i].logprobs, sizeof(alone[i].logprobs)) != 0);
}

static const struct setting settings[] = {
    {"cpu-ref", 1, 1}, {"cpu", 1, 1}, {"cpu", 2, 1}, {"cpu", 1, 2}};

static void one_batch_answers_as_each_alone(void **state) {
    size_t num_settings = gpu != NULL ? 1 : sizeof(settings) / sizeof(settings[0]);
    for (size_t i = 0; i < num_settings; i++) {
        struct fixture f = {0};
        start(&f, &settings[i]);
        answer_each(&f, alone);
        assert_all_differ();
        for (int round = 0; round < 2; round++) { /* the second one finds prefixes */
            answer_all(&f, together);
            assert_same();
        }
        stop(&f);
    }
}

/* Into the slot that is left, which others' tokens do not use. */
static void loading_and_unloading_changes_no_bit(void **state) {
    struct fixture f = {0};
    start(&f, &settings[1]);
    answer_each(&f, alone);
    for (int round = 0; round < (gpu != NULL ? 2 : NUM_ROUNDS); round++) {
        struct request *requests[NUM_REQUESTS];
        for (int i = 0; i < NUM_REQUESTS; i++) {
            requests[i] = make_request(&f, i);
            assert_int_equal(engine_submit(f.engine, requests[i]), SUBMIT_OK);
        }
        for (int i = 0; i < LOADS_PER_ROUND; i++) {
            struct adapter *passing = load(&f, (round + i) % NUM_ADAPTERS);
            if (i % 2 == 0)
                await_state(passing, ADAPTER_READY);
            engine_unload_adapter(f.engine, passing);
            await_state(passing, ADAPTER_GONE);
            adapter_unref(passing);
        }
        for (int i = 0; i < NUM_REQUESTS; i++) {
            read_to_end(requests[i], &together[i]);
            request_unref(requests[i]);
        }
        assert_same();
    }
    stop(&f);
}

static void await_rest(struct fixture *f, enum engine_rest rest) {
    while (engine_get_rest(f->engine).rest != rest)
        usleep(500);
}

static void sleep_changes_no_bit(void **state) {
    struct engine_rest_view view;
    struct fixture f = {0};
    start(&f, &settings[gpu != NULL ? 0 : 2]);
    answer_each(&f, alone);
    for (int discards_weights = 0; discards_weights < 2; discards_weights++) {
        assert_true(engine_sleep(f.engine, discards_weights, &view));
        await_rest(&f, ENGINE_ASLEEP);
        engine_wake(f.engine, &view);
        await_rest(&f, ENGINE_AWAKE);
        answer_all(&f, together);
        assert_same();
    }
    stop(&f);
}

static void lost_ranks_change_no_bit(void **state) {
    const struct setting setting = {"cpu", 1, 1, true};
    struct fixture f = {0};
    start(&f, &setting);
    answer_each(&f, alone);
    for (int round = 0; round < 2; round++) {
        kill(process_executor_pid(f.executor), SIGKILL);
        answer_all(&f, together);
        assert_same();
    }
    stop(&f);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_batch_answers_as_each_alone),
        cmocka_unit_test(loading_and_unloading_changes_no_bit),
        cmocka_unit_test(sleep_changes_no_bit),
        cmocka_unit_test(lost_ranks_change_no_bit),
    };
    if (argc > 1 && strcmp(argv[1], "rank-process") == 0)
        return rank_process_is_expected() ? rank_process_run() : 1;
    if (argc == 3) {
        gpu = argv[1];
        dtype = strcmp(argv[2], "f16") == 0 ? DTYPE_F16 : DTYPE_BF16;
    }
    size_t num_tests = sizeof(tests) / sizeof(tests[0]) - (gpu != NULL); /* starting takes long */
    return _cmocka_run_group_tests("tests", tests, num_tests, make_adapters, remove_adapters);
}
