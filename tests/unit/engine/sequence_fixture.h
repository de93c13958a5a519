/* A request and its group for the unit tests of this folder. */
#ifndef QUIRE_TESTS_UNIT_ENGINE_SEQUENCE_FIXTURE_H
#define QUIRE_TESTS_UNIT_ENGINE_SEQUENCE_FIXTURE_H

#include "engine/grammar/machine/grammar.h"
#include "engine/sequence/sequence_group.h"
#include "tests/sim/fake_tokenizer.h"

#include <stdlib.h>
#include <string.h>

static inline struct sampling_params fixture_params(int32_t max_tokens) {
    return (struct sampling_params){
        .num_choices = 1,
        .max_tokens = max_tokens,
        .settings.top_p = 1,
        .settings.repetition_penalty = 1,
        .seed = 42,
        .num_logprobs = -1,
        .num_prompt_logprobs = -1,
        .skip_special_tokens = true,
    };
}

/* The prompt is 3, 4, 5 ... */
static inline struct sequence_group *fixture_group(uint64_t id, int32_t priority,
                                                   int32_t num_prompt_tokens,
                                                   const struct sampling_params *params,
                                                   int32_t max_model_len, int32_t block_size) {
    int32_t *prompt = malloc((size_t)num_prompt_tokens * sizeof(*prompt));
    for (int32_t i = 0; i < num_prompt_tokens; i++)
        prompt[i] = FAKE_FIRST_PLAIN + i % (FAKE_VOCAB_SIZE - FAKE_FIRST_PLAIN);
    struct request *request = request_create(prompt, num_prompt_tokens, params);
    free(prompt);
    request->id = id;
    request->priority = priority;
    const struct serving_limits limits = {.max_model_len = max_model_len, .block_size = block_size};
    const struct group_shape shape = {.limits = &limits};
    struct sequence_group *group = sequence_group_create(request, &shape);
    request_unref(request);
    return group;
}

/* Matches this text and nothing else. */
static inline struct grammar *fixture_grammar(const char *text) {
    struct grammar_builder *builder = grammar_builder_create();
    struct grammar *grammar = NULL;
    struct error err;
    grammar_build(builder, grammar_literal(builder, text, strlen(text)), &grammar, &err);
    grammar_builder_destroy(builder);
    return grammar;
}

static inline struct grammar_vocabulary *fixture_vocabulary(void) {
    struct grammar_vocabulary *vocabulary = NULL;
    struct error err;
    grammar_vocabulary_create(fake_tokenizer(), &vocabulary, &err);
    return vocabulary;
}

#endif
