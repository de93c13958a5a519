#include "server/program/self_test.h"

#include "config/base/clock.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static const struct sampling_params one_greedy_token = {
    .num_choices = 1,
    .max_tokens = 1,
    .settings = SAMPLING_SETTINGS_GREEDY,
    .num_logprobs = 0,
    .num_prompt_logprobs = -1,
    .ignore_eos = true,
    .skip_special_tokens = true,
};

struct outcome {
    int num_tokens;
    bool is_sound; /* every logprob is a number */
    enum finish_reason finish;
};

static void read_events(struct request *request, struct outcome *outcome) {
    struct token_buffer buffer = {0};
    struct token_event event;
    token_stream_take(&request->stream, &buffer);
    while (token_buffer_next(&buffer, &event)) {
        for (int32_t i = 0; i < event.num_tokens; i++)
            outcome->is_sound = outcome->is_sound && isfinite(event.tokens[i].logprob);
        outcome->num_tokens += event.num_tokens;
        if (event.finish != FINISH_NONE)
            outcome->finish = event.finish;
    }
    token_buffer_finish(&buffer);
}

static void take_ready(struct engine *engine, struct outcome *outcome) {
    struct request *ready[4];
    int count;
    do {
        count = engine_take_ready(engine, ready, 4);
        for (int i = 0; i < count; i++) {
            read_events(ready[i], outcome);
            request_unref(ready[i]);
        }
    } while (count == 4);
}

/* Until the request has finished or the time is up. */
static void wait_for_end(struct engine *engine, int wake_fd, int timeout_ms,
                         struct outcome *outcome) {
    int64_t deadline_ms = clock_now_ms() + timeout_ms;
    while (outcome->finish == FINISH_NONE) {
        struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
        int64_t left_ms = deadline_ms - clock_now_ms();
        if (left_ms <= 0 || (poll(&wake, 1, (int)left_ms) < 0 && errno != EINTR))
            return;
        uint64_t count;
        if (read(wake_fd, &count, sizeof(count)) == sizeof(count))
            take_ready(engine, outcome);
    }
}

int self_test_run(struct engine *engine, int32_t prompt_token, int wake_fd, int timeout_ms,
                  struct error *err) {
    struct outcome outcome = {.is_sound = true};
    struct request *request = request_create(&prompt_token, 1, &one_greedy_token);
    if (!request)
        return error_set(err, ERROR_MEMORY, "no memory for the self-test");
    enum submit_result result = engine_submit(engine, request);
    if (result == SUBMIT_OK)
        wait_for_end(engine, wake_fd, timeout_ms, &outcome);
    request_unref(request);
    if (result != SUBMIT_OK)
        return error_set(err, ERROR_DEVICE, "self-test: the engine refused a request of 1 token");
    if (outcome.finish == FINISH_NONE)
        return error_set(err, ERROR_DEVICE, "self-test: no token within %d ms", timeout_ms);
    if (engine_has_failed(engine))
        return error_set(err, ERROR_DEVICE, "self-test: the device failed: %s",
                         engine_failure(engine).message);
    if (outcome.finish != FINISH_LENGTH || outcome.num_tokens != 1)
        return error_set(err, ERROR_DEVICE,
                         "self-test: the request of 1 token did not end with it");
    if (!outcome.is_sound) /* the same file would compute the same again */
        return error_set(err, ERROR_MODEL,
                         "self-test: the model computes values that are not numbers");
    return 0;
}
