/* A request with every field set comes back with each of them, and headers with theirs; what no
 * engine takes is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/grammar/machine/grammar.h"
#include "engine/record/record_request.h"
#include "tests/sim/fake_lora.h"

#include <math.h>
#include <string.h>

static struct record_header header(void) {
    return (struct record_header){
        .options = "--model=m.gguf\n--cpu-isa=auto\n",
        .build = "0123abcd",
        .model_digest = {1, 2, 3, 255},
        .device = "cpu",
        .numerics = "avx2 on avx2",
        .kv_type = "f16",
        .activation_dtype = "f32",
        .num_ranks = 2,
        .num_stages = 2,
        .batch_invariant = true,
        .kv_bytes = 1 << 20,
        .swap_bytes = 5,
        .limits = {.max_num_seqs = 8,
                   .max_num_batched_tokens = 64,
                   .max_logit_rows = 8,
                   .max_model_len = 128,
                   .num_speculative_tokens = 3,
                   .max_logprobs = 100,
                   .block_size = 16,
                   .num_blocks = 64,
                   .num_host_blocks = 7,
                   .vocab_size = 100,
                   .hidden_size = 4,
                   .window = 9},
        .core = {.schedule = {.kv = {.num_tenants = 3, .caching = true, .keeps_evicted = true},
                              .max_step_ns = -1,
                              .swap_block_ns = 11,
                              .num_shares = 4},
                 .async_scheduling = true,
                 .lora = {.num_slots = 2, .max_rank = 16, .dtype = DTYPE_F16},
                 .stall_timeout_ns = 12},
    };
}

/* --- Headers --- */

static struct record_input input_of(const struct byte_buffer *bytes) {
    assert_false(bytes->failed);
    return record_input_of((struct text){bytes->data, bytes->length});
}

static void a_header_comes_back(void **state) {
    const struct record_header written = header();
    struct byte_buffer bytes = {0};
    struct record_header read;
    struct error err;
    record_header_write(&written, &bytes);
    struct record_input in = input_of(&bytes);
    assert_int_equal(record_header_read(&in, &read, &err), 0);
    assert_int_equal(record_header_compare(&written, &read, &err), 0);
    assert_string_equal(read.options, written.options);
    assert_string_equal(read.build, written.build);
    assert_int_equal(read.kv_bytes, written.kv_bytes);
    assert_int_equal(read.swap_bytes, 5);
    assert_int_equal(read.core.schedule.swap_block_ns, 11);
    assert_int_equal(read.core.schedule.max_step_ns, -1);
    assert_int_equal(read.core.stall_timeout_ns, 12);
    assert_int_equal(read.core.schedule.kv.num_tenants, 3);
    assert_true(read.core.lora.num_slots == 2 && read.core.lora.max_rank == 16 &&
                read.core.lora.dtype == DTYPE_F16);
    assert_int_equal(read.core.schedule.num_shares, 4);
    assert_true(read.core.schedule.kv.caching && read.core.schedule.kv.keeps_evicted &&
                read.core.async_scheduling);
    for (size_t length = 0; length < bytes.length; length++) {
        in = record_input_of((struct text){bytes.data, length});
        assert_int_equal(record_header_read(&in, &read, &err), -1);
    }
    byte_buffer_finish(&bytes);
}

static void differences_of_headers_are_named(void **state) {
    const struct record_header recorded = header();
    struct record_header here = header();
    struct error err;
    strcpy(here.build, "another");
    here.kv_bytes++;
    assert_int_equal(record_header_compare(&recorded, &here, &err), 0);
    here.limits.num_blocks = 65;
    assert_int_equal(record_header_compare(&recorded, &here, &err), -1);
    assert_string_equal(err.message, "recorded with limits.num_blocks 64, here it is 65");
    strcpy(here.numerics, "portable on avx2");
    assert_int_equal(record_header_compare(&recorded, &here, &err), -1);
    assert_string_equal(
        err.message,
        "recorded with numerics \"avx2 on avx2\", here it is \"portable on avx2\" (--cpu-isa "
        "or --gpu-isa)");
    here.model_digest[15] = 1;
    assert_int_equal(record_header_compare(&recorded, &here, &err), -1);
    assert_non_null(strstr(err.message, "the weights are not the same"));
}

/* --- Requests --- */

static const int32_t prompt[] = {0, 99, 5, 5};
static const struct stop_string stops[] = {{"END", 3}, {"\xe2\x82\xac", 3}};
static const int32_t stop_tokens[] = {7, 8}, allowed[] = {1, 2, 1}, listed[] = {9, 3};
static const struct token_bias biases[] = {{4, -INFINITY}, {5, 1.5F}};
static const int32_t run_tokens[] = {1, 2, 3};
static const struct token_run runs[] = {{run_tokens, 3}, {run_tokens, 1}};

static struct grammar *make_grammar(void) {
    struct grammar_builder *builder = grammar_builder_create();
    struct grammar *grammar;
    struct error err;
    const struct character_range digits = {'0', '9'};
    grammar_node digit = grammar_characters(builder, &digits, 1, false);
    const grammar_node items[] = {grammar_literal(builder, "n=", 2),
                                  grammar_repeat(builder, digit, 2, 5), grammar_token(builder, 7)};
    grammar_node root = grammar_sequence(builder, items, 3);
    assert_int_equal(grammar_build(builder, root, &grammar, &err), 0);
    grammar_builder_destroy(builder);
    return grammar;
}

static struct sampling_params all_fields(void) {
    return (struct sampling_params){
        .num_choices = 3,
        .length_penalty = 0.7,
        .early_stopping = EARLY_STOPPING_NEVER,
        .max_tokens = 20,
        .min_tokens = 2,
        .settings = SAMPLING_SETTINGS_ALL_STEPS,
        .seed = UINT64_MAX - 1,
        .num_logprobs = 21,
        .num_prompt_logprobs = 0,
        .num_logprob_tokens = 2,
        .logprob_tokens = listed,
        .ignore_eos = true,
        .include_stop_string = true,
        .skip_special_tokens = true,
        .num_stop_strings = 2,
        .stop_strings = stops,
        .num_dry_breakers = 1,
        .dry_breakers = stops + 1,
        .num_stop_tokens = 2,
        .stop_tokens = stop_tokens,
        .num_biases = 2,
        .biases = biases,
        .num_allowed_tokens = 3,
        .allowed_tokens = allowed,
        .num_bad_runs = 2,
        .bad_runs = runs,
        .thinking = {.begin = "<think>",
                     .end = "</think>",
                     .begins_inside = true,
                     .max_tokens = 6,
                     .num_end_tokens = 1,
                     .end_tokens = {42}},
    };
}

static struct request *make_request(const struct sampling_params *params) {
    struct request *request = request_create(prompt, 4, params);
    assert_non_null(request);
    assert_int_equal(request_set_cache_scope(request, 2, "salt\0x", 6), 0);
    request_set_share(request, 3, 1000);
    request->id = UINT64_MAX;
    request->priority = -5;
    request->arrival_ns = 77;
    request->deadline_ns = 88;
    request->queue_deadline_ns = 99;
    return request;
}

/* Returns NULL where it is refused. */
static struct request *read_back(const struct byte_buffer *bytes, size_t length,
                                 struct record_markers *markers, struct error *err) {
    const struct record_header of = header();
    struct record_input in = record_input_of((struct text){bytes->data, length});
    struct request *request = NULL;
    int status = record_request_read(&in, &of, 2, markers, &request, err);
    assert_true((status == 0) == (request != NULL));
    return request;
}

/* Written again, it is the same bytes; and of these every field has its own. */
static void every_field_comes_back(void **state) {
    struct sampling_params params = all_fields();
    params.grammar = make_grammar();
    struct request *request = make_request(&params);
    struct byte_buffer bytes = {0}, again = {0};
    struct record_markers markers = {.count = 0};
    struct error err;
    record_request_write(request, NULL, &bytes);
    struct request *read = read_back(&bytes, bytes.length, &markers, &err);
    assert_non_null(read);
    record_request_write(read, NULL, &again);
    assert_int_equal(again.length, bytes.length);
    assert_memory_equal(again.data, bytes.data, bytes.length);
    const struct sampling_params *p = &read->params;
    assert_true(read->id == UINT64_MAX && read->priority == -5 && read->share == 3);
    assert_true(read->weight == 1000 && read->tenant == 2 && read->arrival_ns == 77);
    assert_true(read->deadline_ns == 88 && read->queue_deadline_ns == 99);
    assert_int_equal(read->cache_salt_bytes, 6);
    assert_memory_equal(read->cache_salt, "salt\0x", 6);
    assert_int_equal(read->num_prompt_tokens, 4);
    assert_memory_equal(read->prompt, prompt, sizeof(prompt));
    assert_true(p->num_choices == 3 && p->max_tokens == 20 && p->min_tokens == 2);
    assert_true(p->length_penalty == 0.7 && p->early_stopping == EARLY_STOPPING_NEVER);
    assert_memory_equal(&p->settings, &params.settings, sizeof(p->settings));
    assert_true(p->seed == UINT64_MAX - 1 && p->num_logprobs == 21 && p->num_prompt_logprobs == 0);
    assert_true(p->ignore_eos && p->include_stop_string && p->skip_special_tokens);
    assert_memory_equal(p->stop_strings[1].data, "\xe2\x82\xac", 3);
    assert_memory_equal(p->stop_tokens, stop_tokens, sizeof(stop_tokens));
    assert_memory_equal(p->biases, biases, sizeof(biases));
    assert_memory_equal(p->allowed_tokens, allowed, sizeof(allowed));
    assert_memory_equal(p->logprob_tokens, listed, sizeof(listed));
    assert_memory_equal(p->bad_runs[0].tokens, run_tokens, sizeof(run_tokens));
    assert_string_equal(p->thinking.begin, "<think>");
    assert_string_equal(p->thinking.end, "</think>");
    assert_true(p->thinking.begins_inside && p->thinking.max_tokens == 6);
    assert_true(p->thinking.num_end_tokens == 1 && p->thinking.end_tokens[0] == 42);
    assert_non_null(p->grammar);
    request_unref(read);
    request_unref(request);
    grammar_unref(params.grammar);
    record_markers_finish(&markers);
    byte_buffer_finish(&bytes);
    byte_buffer_finish(&again);
}

/* Recordings of this version exist: whoever changes what is written, or the order of the sampling
 * fields, raises RECORD_VERSION and takes the new sum (FNV-1a). */
static void the_bytes_are_those_of_the_version(void **state) {
    const struct sampling_params params = all_fields();
    struct request *request = make_request(&params);
    struct byte_buffer bytes = {0};
    uint32_t sum = 2166136261U;
    record_request_write(request, NULL, &bytes);
    for (size_t i = 0; i < bytes.length; i++)
        sum = (sum ^ (uint8_t)bytes.data[i]) * 16777619U;
    assert_int_equal(RECORD_VERSION, 8);
    assert_int_equal(sum, 0x94c2b02d);
    request_unref(request);
    byte_buffer_finish(&bytes);
}

/* A request names the slot of its adapter, which must be one that requests may use. */
static void an_adapter_is_that_of_the_slot(void **state) {
    const struct sampling_params params = all_fields();
    struct adapter *adapter = fake_lora_adapter("sql", 5);
    struct request *request = make_request(&params), *read;
    struct record_markers markers = {.count = 0};
    struct byte_buffer bytes = {0};
    struct error err;
    adapter->slot = 1;
    request_set_adapter(request, adapter);
    record_request_write(request, NULL, &bytes);
    assert_null(read_back(&bytes, bytes.length, &markers, &err));
    assert_non_null(strstr(err.message, "adapter"));
    markers.adapters[1] = adapter;
    read = read_back(&bytes, bytes.length, &markers, &err);
    assert_non_null(read);
    assert_ptr_equal(read->adapter, adapter);
    request_unref(read);
    request_unref(request);
    adapter_unref(adapter);
    record_markers_finish(&markers);
    byte_buffer_finish(&bytes);
    assert_int_equal(fake_lora_num_open(), 0);
}

/* Without what comes after its last op a grammar is none; anything shorter lacks a field. */
static void what_is_cut_off_is_refused(void **state) {
    struct sampling_params params = all_fields();
    struct request *request = make_request(&params);
    struct record_markers markers = {.count = 0};
    struct byte_buffer bytes = {0};
    struct error err;
    record_request_write(request, NULL, &bytes);
    for (size_t length = 0; length < bytes.length; length++) {
        assert_null(read_back(&bytes, length, &markers, &err));
        assert_int_equal(err.code, ERROR_SYNTAX);
    }
    request_unref(request);
    record_markers_finish(&markers);
    byte_buffer_finish(&bytes);
}

static void refuses(const struct sampling_params *params, const char *name) {
    struct request *request = make_request(params);
    struct record_markers markers = {.count = 0};
    struct byte_buffer bytes = {0};
    struct error err = {0};
    record_request_write(request, NULL, &bytes);
    assert_null(read_back(&bytes, bytes.length, &markers, &err));
    assert_non_null(strstr(err.message, name));
    request_unref(request);
    record_markers_finish(&markers);
    byte_buffer_finish(&bytes);
}

/* As the front end would: nothing the engine relies on is left to the file. */
static void what_no_engine_takes_is_refused(void **state) {
    static const int32_t beyond[] = {100};
    static const struct token_bias twice[] = {{4, 1}, {4, 2}};
    const struct sampling_params plain = {.num_choices = 1,
                                          .max_tokens = 4,
                                          .settings = SAMPLING_SETTINGS_NEUTRAL,
                                          .num_logprobs = -1,
                                          .num_prompt_logprobs = -1};
    struct sampling_params params = plain;
    params.stop_tokens = beyond;
    params.num_stop_tokens = 1;
    refuses(&params, "stop_tokens");
    params = plain;
    params.biases = twice;
    params.num_biases = 2;
    refuses(&params, "a second bias of a token");
    params = plain;
    params.settings.top_p = 2;
    refuses(&params, "top_p");
    params = plain;
    params.settings.temperature = NAN;
    refuses(&params, "temperature");
    params = plain;
    params.num_logprobs = 101;
    refuses(&params, "num_logprobs");
    params = plain;
    params.beam_width = 4;
    refuses(&params, "beam_width"); /* with a temperature */
    params.settings = (struct sampling_settings)SAMPLING_SETTINGS_GREEDY;
    params.beam_width = BEAM_MAX_CANDIDATES - 1; /* and two end tokens */
    refuses(&params, "beam_width");
    params.beam_width = 16; /* slots there are 8 of */
    refuses(&params, "larger than the engine takes");
}

static void a_grammar_that_was_changed_is_refused_or_sound(void **state) {
    struct grammar *grammar = make_grammar(), *read;
    struct byte_buffer bytes = {0};
    struct error err;
    grammar_write(grammar, &bytes);
    const struct text whole = {bytes.data, bytes.length};
    assert_int_equal(grammar_read(whole, 7, &read, &err), -1); /* it names token 7 */
    assert_int_equal(grammar_read(whole, 8, &read, &err), 0);
    grammar_unref(read);
    for (size_t bit = 0; bit < 8 * bytes.length; bit++) {
        bytes.data[bit / 8] ^= (char)(1 << bit % 8);
        if (grammar_read(whole, 8, &read, &err) == 0)
            grammar_unref(read);
        bytes.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t length = 0; length < bytes.length; length++)
        assert_int_equal(grammar_read((struct text){bytes.data, length}, 8, &read, &err), -1);
    grammar_unref(grammar);
    byte_buffer_finish(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_comes_back),
        cmocka_unit_test(differences_of_headers_are_named),
        cmocka_unit_test(every_field_comes_back),
        cmocka_unit_test(the_bytes_are_those_of_the_version),
        cmocka_unit_test(an_adapter_is_that_of_the_slot),
        cmocka_unit_test(what_is_cut_off_is_refused),
        cmocka_unit_test(what_no_engine_takes_is_refused),
        cmocka_unit_test(a_grammar_that_was_changed_is_refused_or_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
