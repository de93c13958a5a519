/* Any bytes as the values of a record: header, request, or a step that is compared with itself and
 * with others. Whatever request is taken keeps to what the engine relies on, and is written as the
 * same values again. The first byte chooses. */
#include "engine/record/record_request.h"
#include "engine/record/record_step.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition) {
    if (!condition)
        abort();
}

static const struct record_header engine = {
    .limits = {.max_num_seqs = 8,
               .max_num_batched_tokens = 64,
               .max_model_len = 256,
               .max_logprobs = 100,
               .block_size = 16,
               .num_blocks = 64,
               .vocab_size = 100,
               .hidden_size = 4},
    .core.schedule = {.kv.num_tenants = 3, .num_shares = 4},
};

static void check_tokens(const int32_t *tokens, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        require(tokens[i] >= 0 && tokens[i] < engine.limits.vocab_size);
}

static void check_request(const struct request *request) {
    const struct sampling_params *params = &request->params;
    require(request->num_prompt_tokens >= 1 && params->num_choices >= 1);
    check_tokens(request->prompt, request->num_prompt_tokens);
    check_tokens(params->stop_tokens, params->num_stop_tokens);
    check_tokens(params->allowed_tokens, params->num_allowed_tokens);
    check_tokens(params->logprob_tokens, params->num_logprob_tokens);
    require(params->num_stop_strings <= MAX_STOP_STRINGS && params->num_biases <= MAX_LOGIT_BIASES);
    require(params->settings.temperature >= 0 && params->settings.top_p > 0);
    require(request->tenant >= 0 && request->tenant < engine.core.schedule.kv.num_tenants);
    require(request->share >= 0 && request->share < engine.core.schedule.num_shares);
    require(params->thinking.num_end_tokens == 0 || params->thinking.begin[0] != '\0');
}

static void try_request(struct record_input in) {
    struct record_markers markers = {.count = 0};
    struct byte_buffer once = {0}, twice = {0};
    struct request *request, *again;
    struct error err = {0};
    if (record_request_read(&in, &engine, 1, &markers, &request, &err) == 0) {
        check_request(request);
        record_request_write(request, NULL, &once);
        struct record_input written = record_input_of((struct text){once.data, once.length});
        require(record_request_read(&written, &engine, 1, &markers, &again, &err) == 0);
        record_request_write(again, NULL, &twice);
        require(once.length == twice.length && memcmp(once.data, twice.data, once.length) == 0);
        request_unref(again);
        request_unref(request);
    } else {
        require(err.message[0] != '\0');
    }
    record_markers_finish(&markers);
    byte_buffer_finish(&once);
    byte_buffer_finish(&twice);
}

static void try_header(struct record_input in) {
    static struct record_header header;
    struct byte_buffer once = {0};
    struct error err = {0};
    if (record_header_read(&in, &header, &err) == 0) {
        require(record_header_compare(&header, &header, &err) == 0);
        record_header_compare(&engine, &header, &err);
        record_header_write(&header, &once);
    }
    byte_buffer_finish(&once);
}

static void try_step(struct text bytes) {
    struct text half = {bytes.data, bytes.length / 2},
                rest = {bytes.data + half.length, bytes.length - half.length};
    uint64_t num_entries = 0, num_tokens = 0;
    char difference[448] = "";
    record_step_failure(bytes);
    record_step_count(bytes, &num_entries, &num_tokens);
    require(num_entries <= bytes.length && num_tokens <= bytes.length);
    record_step_explain(half, rest, difference, sizeof(difference));
    require(difference[0] != '\0');
}

static void try_frames(const uint8_t *data, size_t bytes) {
    struct record_frames frames = {.file = fmemopen((void *)data, bytes, "r")};
    enum record_kind kind;
    struct record_input in;
    struct error err;
    require(frames.file != NULL);
    while (record_frames_next(&frames, &kind, &in, &err) > 0)
        require(frames.read <= bytes);
    fclose(frames.file);
    record_frames_finish(&frames);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 2)
        return 0;
    const struct text values = {(const char *)data + 1, bytes - 1};
    if (data[0] == RECORD_REQUEST)
        try_request(record_input_of(values));
    else if (data[0] == RECORD_HEADER)
        try_header(record_input_of(values));
    else if (data[0] == RECORD_STEP)
        try_step(values);
    else
        try_frames(data + 1, bytes - 1);
    return 0;
}
