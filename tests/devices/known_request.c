#include "tests/devices/known_request.h"

#include "config/base/check.h"
#include "engine/grammar/machine/grammar.h"

enum {
    MAX_PROMPT = 256,
    NUM_TEXTS = 3,
    FIRST_TOKEN = 16, /* ordinary text from here on */
    NUM_BIASED = 4,
    MAX_GRAMMAR = 40
};

/* How what is generated follows from the request alone. */
enum known {
    KNOWN_LENGTH,  /* the tokens are the model's likeliest: it ends by its length */
    KNOWN_ALLOWED, /* one token may be sampled */
    KNOWN_BIASED,  /* biases and a penalty have a few tokens take turns */
    KNOWN_GRAMMAR, /* a grammar of one text */
    KNOWN_POOLING, /* nothing is generated */
    NUM_KNOWN
};

/* What the parameters point to. */
struct parts {
    int32_t allowed, stop_token, logprob_tokens[2];
    struct token_bias biases[NUM_BIASED];
    struct token_run run;
    int32_t run_tokens[2];
};

static int32_t draw_token(struct random *random, const struct known_request_shape *shape) {
    return random_range(random, FIRST_TOKEN, shape->vocab_size - NUM_BIASED);
}

/* Many plain rows in a step, and nothing else, are what a device replays. */
static enum known draw_known(struct random *random, const struct known_request_shape *shape) {
    if (!shape->tokens && !random_once_in(random, 3))
        return KNOWN_LENGTH;
    return (enum known)random_range(random, KNOWN_ALLOWED, NUM_KNOWN - 1);
}

/* Sequences that share a block because they happen to sample the same tokens would do so on one
 * device only: where the tokens are not known they are equal or not whatever the device. */
static void draw_sampling(struct random *random, enum known known, struct sampling_params *params) {
    if (known == KNOWN_LENGTH || random_once_in(random, 2))
        return;
    params->settings.temperature = random_once_in(random, 2) ? 1 : 0.7f;
    params->settings.top_p = random_once_in(random, 2) ? 0.9f : 1;
    params->settings.top_k = random_once_in(random, 2) ? 40 : -1;
}

static void draw_allowed(struct random *random, const struct known_request_shape *shape,
                         struct sampling_params *params, struct parts *parts) {
    parts->allowed = draw_token(random, shape);
    params->num_allowed_tokens = 1;
    params->settings.repetition_penalty = random_once_in(random, 2) ? 1.25f : 1;
    params->settings.presence_penalty = random_once_in(random, 2) ? 0.5f : 0;
}

/* The values of two of the tokens, of which n and m were generated, differ by 100 d - 250 (n - m)
 * with d in 1..3: by 50 at least, which no logit outweighs. However many are generated, they stay
 * above those of all others. */
static void draw_biased(struct random *random, const struct known_request_shape *shape,
                        struct sampling_params *params, struct parts *parts) {
    int32_t first = draw_token(random, shape);
    for (int32_t i = 0; i < NUM_BIASED; i++)
        parts->biases[i] = (struct token_bias){first + i, (float)(20000 - 100 * i)};
    params->num_biases = NUM_BIASED;
    params->settings.frequency_penalty = 250;
    if (random_once_in(random, 3)) {
        parts->stop_token = first + NUM_BIASED - 1;
        params->num_stop_tokens = 1;
        params->min_tokens = random_range(random, 0, params->max_tokens);
    }
    if (random_once_in(random, 3)) {
        parts->run_tokens[0] = first;
        parts->run_tokens[1] = first + 1;
        params->num_bad_runs = 1;
    }
}

/* Its tokens, then an end token. */
static void draw_grammar(struct random *random, const struct known_request_shape *shape,
                         struct sampling_params *params) {
    struct grammar_builder *builder = grammar_builder_create();
    grammar_node items[MAX_GRAMMAR];
    int32_t count = random_range(random, 1, MAX_GRAMMAR);
    struct error err;
    CHECK(builder != NULL);
    for (int32_t i = 0; i < count; i++)
        items[i] = grammar_token(builder, draw_token(random, shape));
    CHECK(grammar_build(builder, grammar_sequence(builder, items, count), &params->grammar, &err) ==
          0);
    grammar_builder_destroy(builder);
    params->ignore_eos = false;
}

static void draw_pooling(struct random *random, struct sampling_params *params) {
    params->pooling = random_once_in(random, 2) ? POOLING_LAST : POOLING_MEAN;
    params->num_choices = 1;
    params->max_tokens = 0;
    params->num_prompt_logprobs = -1;
}

static void draw_logprobs(struct random *random, const struct known_request_shape *shape,
                          struct sampling_params *params, struct parts *parts) {
    if (random_once_in(random, 6))
        params->num_prompt_logprobs = random_range(random, 0, 3);
    if (!random_once_in(random, 4))
        return;
    params->num_logprobs = random_range(random, 0, 5);
    parts->logprob_tokens[0] = draw_token(random, shape);
    parts->logprob_tokens[1] = parts->logprob_tokens[0] + 1;
    params->num_logprob_tokens = random_once_in(random, 2) ? 2 : 0;
}

static int32_t draw_prompt(struct random *random, const struct known_request_shape *shape,
                           int32_t *prompt) {
    int32_t count = random_range(random, 1, shape->max_prompt_tokens);
    int32_t num_shared = random_once_in(random, 3) ? 0 : random_range(random, 0, count);
    struct random text =
        random_from(shape->text_seed + (uint64_t)random_range(random, 1, NUM_TEXTS));
    CHECK(shape->max_prompt_tokens <= MAX_PROMPT);
    for (int32_t i = 0; i < count; i++)
        prompt[i] = draw_token(i < num_shared ? &text : random, shape);
    return count;
}

struct request *known_request(struct random *random, const struct known_request_shape *shape,
                              bool *out_tokens) {
    struct parts parts;
    int32_t prompt[MAX_PROMPT];
    int32_t num_prompt_tokens = draw_prompt(random, shape, prompt);
    struct sampling_params params = {
        .num_choices = random_once_in(random, 3) ? random_range(random, 1, shape->max_choices) : 1,
        .max_tokens = random_range(random, shape->min_output_tokens, shape->max_output_tokens),
        .settings = SAMPLING_SETTINGS_GREEDY,
        .seed = random_next(random),
        .num_logprobs = -1,
        .num_prompt_logprobs = -1,
        .ignore_eos = true,
        .allowed_tokens = &parts.allowed,
        .stop_tokens = &parts.stop_token,
        .logprob_tokens = parts.logprob_tokens,
        .biases = parts.biases,
        .bad_runs = &parts.run,
    };
    parts.run = (struct token_run){parts.run_tokens, 2};
    enum known known = draw_known(random, shape);
    draw_sampling(random, known, &params);
    if (known != KNOWN_LENGTH)
        draw_logprobs(random, shape, &params, &parts);
    if (known == KNOWN_ALLOWED)
        draw_allowed(random, shape, &params, &parts);
    else if (known == KNOWN_BIASED)
        draw_biased(random, shape, &params, &parts);
    else if (known == KNOWN_GRAMMAR)
        draw_grammar(random, shape, &params);
    else if (known == KNOWN_POOLING)
        draw_pooling(random, &params);
    struct request *request = request_create(prompt, num_prompt_tokens, &params);
    CHECK(request != NULL);
    grammar_unref(params.grammar);
    request->priority = random_once_in(random, 4) ? random_range(random, -2, 2) : 0;
    *out_tokens = known != KNOWN_LENGTH;
    return request;
}
