#include "tests/sim/random_request.h"

#include "config/base/check.h"
#include "engine/grammar/machine/grammar.h"
#include "tests/sim/fake_tokenizer.h"

#include <math.h>
#include <string.h>

static const struct stop_string stops[] = {
    {"END", 3}, {"ab", 2}, {"aba", 3},     {"bab", 3},          {"\n\n", 2},
    {"abc", 3}, {"€", 3},  {"aaaaaab", 7}, {"\xef\xbf\xbd", 3}, {"hellohello", 10},
};
#define NUM_STOPS ((int32_t)(sizeof(stops) / sizeof(stops[0])))

static int32_t random_token(struct random *random) {
    return random_range(random, 0, FAKE_VOCAB_SIZE - 1);
}

static void draw_ends(struct random *random, struct sampling_params *params,
                      struct stop_string *stop_strings, int32_t *stop_tokens) {
    params->ignore_eos = !random_once_in(random, 3);
    params->skip_special_tokens = !random_once_in(random, 4);
    params->include_stop_string = random_once_in(random, 4);
    if (random_once_in(random, 3))
        params->min_tokens = random_range(random, 0, params->max_tokens);
    if (random_once_in(random, 2)) {
        params->num_stop_strings = random_range(random, 1, 4);
        int32_t first = random_range(random, 0, NUM_STOPS - 1);
        for (int32_t i = 0; i < params->num_stop_strings; i++)
            stop_strings[i] = stops[(first + i) % NUM_STOPS];
    }
    if (random_once_in(random, 4)) {
        params->num_stop_tokens = random_range(random, 1, 3);
        for (int32_t i = 0; i < params->num_stop_tokens; i++)
            stop_tokens[i] = random_token(random);
    }
}

static void draw_biases(struct random *random, struct sampling_params *params,
                        struct token_bias *biases) {
    if (!random_once_in(random, 4))
        return;
    params->num_biases = random_range(random, 1, 5);
    int32_t first = random_token(random);
    for (int32_t i = 0; i < params->num_biases; i++) {
        float bias = random_once_in(random, 4) ? -INFINITY : 0.5f * (float)(i + 1);
        biases[i] = (struct token_bias){(first + i * 3) % FAKE_VOCAB_SIZE, bias};
    }
}

enum { MAX_ALLOWED = 6, MAX_RUNS = 3, MAX_RUN = 3 };

struct random_constraints {
    int32_t allowed[MAX_ALLOWED];
    struct token_run runs[MAX_RUNS];
    int32_t run_tokens[MAX_RUNS][MAX_RUN];
};

static void draw_constraints(struct random *random, struct sampling_params *params,
                             struct random_constraints *constraints) {
    params->allowed_tokens = constraints->allowed;
    params->bad_runs = constraints->runs;
    if (random_once_in(random, 10))
        params->num_allowed_tokens = random_range(random, 1, MAX_ALLOWED);
    for (int32_t i = 0; i < params->num_allowed_tokens; i++)
        constraints->allowed[i] = random_token(random);
    if (random_once_in(random, 3))
        params->num_bad_runs = random_range(random, 1, MAX_RUNS);
    for (int32_t i = 0; i < params->num_bad_runs; i++) {
        constraints->runs[i] =
            (struct token_run){constraints->run_tokens[i], random_range(random, 1, MAX_RUN)};
        for (int32_t t = 0; t < constraints->runs[i].count; t++)
            constraints->run_tokens[i][t] =
                params->num_allowed_tokens > 0
                    ? constraints->allowed[t % params->num_allowed_tokens]
                    : random_token(random);
    }
}

/* Chooses a grammar: of letters without an end, of some letters and an end of several tokens, or of
 * a text known but for its length, with a start of several tokens. */
static struct grammar *draw_grammar(struct random *random) {
    static const struct character_range letters = {'a', 'c'};
    struct grammar_builder *builder = grammar_builder_create();
    CHECK(builder != NULL);
    int kind = random_range(random, 0, 2);
    grammar_node letter = grammar_characters(builder, &letters, 1, false);
    grammar_node space = grammar_literal(builder, " ", 1);
    grammar_node item = kind < 2 ? letter : space;
    int max = kind == 0 ? -1 : random_range(random, 2, 8);
    static const char start[] = "hello a\xc3\xa9 bb hello", end[] = "ENDabcab helloab\nhellobb cc";
    size_t start_length = kind == 2 ? (size_t)random_range(random, 5, sizeof(start) - 1) : 0;
    size_t end_length = kind == 1 ? (size_t)random_range(random, 3, sizeof(end) - 1) : 0;
    grammar_node parts[] = {
        grammar_literal(builder, start, start_length),
        grammar_repeat(builder, item, random_range(random, 0, 2), max),
        grammar_literal(builder, end, end_length),
    };
    struct grammar *grammar;
    struct error err;
    CHECK(grammar_build(builder, grammar_sequence(builder, parts, 3), &grammar, &err) == 0);
    grammar_builder_destroy(builder);
    return grammar;
}

static void draw_penalties(struct random *random, struct sampling_params *params) {
    params->settings.repetition_penalty = random_once_in(random, 4) ? 1.25f : 1;
    params->settings.frequency_penalty = random_once_in(random, 4) ? 0.5f : 0;
    params->settings.presence_penalty = random_once_in(random, 4) ? 0.25f : 0;
}

/* DRY, whose penalties are exact in a float, and Mirostat. */
static void draw_steps(struct random *random, struct sampling_params *params) {
    static const struct stop_string breakers[] = {{"b", 1}, {"a ", 2}, {"\n", 1}};
    if (params->beam_width > 0)
        return;
    if (random_once_in(random, 5)) {
        params->settings.dry_multiplier = 0.5f;
        params->settings.dry_base = 2;
        params->settings.dry_allowed_length = random_range(random, 1, 2);
        params->settings.dry_penalty_last_n =
            random_once_in(random, 2) ? -1 : random_range(random, 0, 20);
        params->dry_breakers = breakers;
        params->num_dry_breakers = random_range(random, 0, 3);
    }
    if (random_once_in(random, 5)) {
        params->settings.mirostat = random_range(random, 1, 2);
        params->settings.mirostat_tau = 4;
        params->settings.mirostat_eta = 0.5f;
    }
}

static int32_t draw_logprobs(struct random *random, const struct request_shape *shape) {
    return random_once_in(random, 3) ? random_range(random, 0, shape->max_logprobs)
                                     : shape->min_logprobs;
}

/* Distinct tokens whose logprobs are streamed instead of the likeliest ones'. */
static void draw_logprob_tokens(struct random *random, struct sampling_params *params,
                                int32_t *tokens) {
    params->logprob_tokens = tokens;
    if (params->num_logprobs < 0 || params->beam_width > 0 || !random_once_in(random, 4))
        return;
    params->num_logprob_tokens = random_range(random, 1, MAX_ALLOWED);
    int32_t first = random_token(random);
    for (int32_t i = 0; i < params->num_logprob_tokens; i++)
        tokens[i] = (first + i * 5) % FAKE_VOCAB_SIZE;
}

/* Texts of tokens: "a" opens the reasoning, "ba" ends it. */
static void draw_thinking(struct random *random, struct sampling_params *params) {
    if (params->beam_width > 0 || !random_once_in(random, 6))
        return;
    params->thinking = (struct thinking_budget){
        .begin = "a",
        .end = "ba",
        .begins_inside = !random_once_in(random, 3),
        .max_tokens = random_range(random, 0, 6),
        .num_end_tokens = 2,
        .end_tokens = {FAKE_FIRST_PLAIN + 1, FAKE_FIRST_PLAIN},
    };
}

static void draw_pooling(struct random *random, struct sampling_params *params) {
    if (!random_once_in(random, 6))
        return;
    params->pooling = random_once_in(random, 3) ? POOLING_LAST : POOLING_MEAN;
    params->num_choices = 1;
    params->max_tokens = 0;
    params->num_prompt_logprobs = -1;
}

/* For the best continuations instead of sampled ones: without whatever bends what is sampled. */
static void draw_beams(struct random *random, const struct request_shape *shape,
                       struct sampling_params *params) {
    static const double penalties[] = {1, 0, 0.5, 2, -1};
    if (shape->max_beam_width == 0 || params->pooling != POOLING_NONE ||
        !random_once_in(random, shape->many_beams ? 2 : 4))
        return;
    params->beam_width = random_range(random, 1, shape->max_beam_width);
    params->num_choices = random_range(random, 1, params->beam_width);
    params->length_penalty = penalties[random_range(random, 0, 4)];
    params->early_stopping = (enum early_stopping)random_range(random, 0, 2);
    params->max_tokens += params->max_tokens == 0;
    params->settings.temperature = 0;
    params->settings.repetition_penalty = 1;
    params->settings.frequency_penalty = 0;
    params->settings.presence_penalty = 0;
    params->num_prompt_logprobs = -1;
    if (params->num_logprobs > SAMPLE_MAX_LOGPROBS)
        params->num_logprobs = SAMPLE_MAX_LOGPROBS;
    params->num_stop_strings = 0;
    params->num_biases = 0;
    params->num_allowed_tokens = 0;
    params->num_bad_runs = 0;
}

static int32_t draw_prompt(struct random *random, const struct request_shape *shape,
                           int32_t *prompt) {
    int32_t num_tokens = random_range(random, 1, shape->max_prompt_tokens);
    int32_t num_shared = 0;
    if (shape->num_texts > 0 && !random_once_in(random, 4)) {
        num_shared = random_range(random, 0, num_tokens);
        struct random text =
            random_from(shape->text_seed + (uint64_t)random_range(random, 1, shape->num_texts));
        for (int32_t i = 0; i < num_shared; i++)
            prompt[i] = random_token(&text);
    }
    for (int32_t i = num_shared; i < num_tokens; i++)
        prompt[i] = random_token(random);
    return num_tokens;
}

static void draw_scope(struct random *random, const struct request_shape *shape,
                       struct request *request) {
    static const char *const salts[] = {"a", "b", "a longer salt"};
    int32_t tenant = shape->num_tenants > 1 ? random_range(random, 0, shape->num_tenants - 1) : 0;
    bool salted = shape->num_texts > 0 && random_once_in(random, 4);
    const char *salt = salted ? salts[random_range(random, 0, 2)] : NULL;
    CHECK(request_set_cache_scope(request, tenant, salt, salted ? strlen(salt) : 0) == 0);
}

struct request *random_request(struct random *random, const struct request_shape *shape) {
    int32_t prompt[1024], stop_tokens[3], logprob_tokens[MAX_ALLOWED];
    struct stop_string stop_strings[4];
    struct token_bias biases[5];
    struct random_constraints constraints;
    CHECK(shape->max_prompt_tokens <= 1024);
    int32_t num_prompt_tokens = draw_prompt(random, shape, prompt);
    struct sampling_params params = {
        .num_choices = random_once_in(random, 3) ? random_range(random, 1, shape->max_choices) : 1,
        .max_tokens = random_once_in(random, 10)
                          ? random_range(random, 0, 1)
                          : random_range(random, 1, shape->max_output_tokens),
        .settings = SAMPLING_SETTINGS_NEUTRAL,
        .seed = random_next(random),
        .num_logprobs = draw_logprobs(random, shape),
        .num_prompt_logprobs = draw_logprobs(random, shape),
        .stop_strings = stop_strings,
        .stop_tokens = stop_tokens,
        .biases = biases,
    };
    draw_pooling(random, &params);
    draw_penalties(random, &params);
    draw_ends(random, &params, stop_strings, stop_tokens);
    if (shape->long_outputs && !random_once_in(random, 4))
        params.min_tokens = params.max_tokens;
    draw_biases(random, &params, biases);
    draw_constraints(random, &params, &constraints);
    draw_beams(random, shape, &params);
    draw_logprob_tokens(random, &params, logprob_tokens);
    draw_thinking(random, &params);
    draw_steps(random, &params);
    if (shape->grammars && params.beam_width == 0 && random_once_in(random, 8))
        params.grammar = draw_grammar(random);
    struct request *request = request_create(prompt, num_prompt_tokens, &params);
    CHECK(request != NULL);
    grammar_unref(params.grammar);
    request->priority = random_once_in(random, 4) ? random_range(random, -2, 2) : 0;
    draw_scope(random, shape, request);
    return request;
}
