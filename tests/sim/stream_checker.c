#include "tests/sim/stream_checker.h"

#include "config/base/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void stream_checker_init(struct stream_checker *checker, struct request *request,
                         int32_t max_model_len, const struct grammar_vocabulary *vocabulary) {
    memset(checker, 0, sizeof(*checker));
    checker->request = request;
    size_t num_choices = (size_t)request->params.num_choices;
    struct oracle_choice *oracles = calloc(num_choices, sizeof(*oracles));
    checker->choices = calloc(num_choices, sizeof(*checker->choices));
    CHECK(oracles != NULL && checker->choices != NULL);
    oracle_run(request, max_model_len, vocabulary, oracles);
    for (size_t i = 0; i < num_choices; i++)
        checker->choices[i].oracle = oracles[i];
    free(oracles);
}

bool stream_checker_is_cut(enum finish_reason finish) {
    return finish == FINISH_ABORT || finish == FINISH_CRASHED || finish == FINISH_ERROR ||
           finish == FINISH_DEADLINE || finish == FINISH_QUEUE_TIMEOUT || finish == FINISH_ASLEEP;
}

void stream_checker_finish(struct stream_checker *checker) {
    for (int32_t i = 0; i < checker->request->params.num_choices; i++)
        oracle_finish(&checker->choices[i].oracle);
    free(checker->choices);
    token_buffer_finish(&checker->buffer);
    request_unref(checker->request);
}

bool stream_checker_is_done(const struct stream_checker *checker) {
    return checker->num_finished == checker->request->params.num_choices;
}

static void violate(struct stream_checker *checker, const struct token_event *event,
                    const char *what) {
    if (checker->violation[0] == '\0')
        snprintf(checker->violation, sizeof(checker->violation),
                 "choice %d: %s (event: %d tokens, %d generated, finish %d)", event->choice, what,
                 event->num_tokens, event->num_generated, event->finish);
}

/* Says which logprobs were requested. */
struct requested {
    int32_t num_best;      /* -1: none at all */
    const int32_t *tokens; /* NULL: the best */
    int32_t num_tokens;
};

static bool lists(const struct top_logprob *top, int32_t num_top, uint64_t history,
                  const struct requested *requested) {
    struct fake_distribution all;
    fake_model_distribution(history, &all);
    const int32_t *tokens = requested->tokens != NULL ? requested->tokens : all.tokens;
    if (num_top != (requested->tokens != NULL ? requested->num_tokens : requested->num_best))
        return false;
    for (int32_t i = 0; i < num_top; i++)
        if (top[i].token != tokens[i] || top[i].logprob != fake_model_logprob(history, tokens[i]))
            return false;
    return true;
}

static bool record_matches(const struct token_event *event, int32_t index, int32_t token,
                           uint64_t history, const struct requested *requested) {
    const struct token_record *record = &event->tokens[index];
    if (record->token != token)
        return false;
    if (requested->num_best < 0)
        return isnan(record->logprob) && record->num_top == 0;
    struct fake_distribution all;
    fake_model_distribution(history, &all);
    if (record->logprob != fake_model_logprob(history, token) ||
        record->rank != fake_model_rank(&all, token) ||
        record->first_top + record->num_top > event->num_top)
        return false;
    return lists(event->top + record->first_top, record->num_top, history, requested);
}

static void check_scores(struct stream_checker *checker, const struct token_event *event) {
    const struct request *request = checker->request;
    if (event->choice != 0 || checker->saw_text || request->params.num_prompt_logprobs < 0)
        violate(checker, event, "prompt scores out of place");
    if (event->num_tokens < 1 ||
        checker->num_scored + event->num_tokens > request->num_prompt_tokens) {
        violate(checker, event, "number of prompt scores");
        return;
    }
    for (int32_t i = 0; i < event->num_tokens; i++) {
        int32_t token = request->prompt[checker->num_scored];
        const struct requested requested = {
            .num_best = checker->num_scored == 0 ? -1 : request->params.num_prompt_logprobs};
        if (!record_matches(event, i, token, checker->score_history, &requested))
            violate(checker, event, "prompt score");
        checker->score_history = fake_model_hash(checker->score_history, token);
        checker->num_scored++;
    }
}

static void check_end(struct stream_checker *checker, struct choice_progress *choice,
                      const struct token_event *event) {
    const struct oracle_choice *oracle = &choice->oracle;
    choice->finish = event->finish;
    checker->num_finished++;
    const struct request *request = checker->request;
    if (event->finish == FINISH_DEADLINE && request->deadline_ns == 0)
        violate(checker, event, "no deadline");
    if (event->finish == FINISH_QUEUE_TIMEOUT &&
        (choice->num_tokens > 0 || checker->num_scored > 0 ||
         (request->deadline_ns == 0 && request->queue_deadline_ns == 0)))
        violate(checker, event, "no queue timeout");
    if (stream_checker_is_cut(event->finish))
        return;
    if (event->finish != oracle->finish || event->stop_token != oracle->stop_token ||
        event->stop_string != oracle->stop_string)
        violate(checker, event, "wrong end");
    if (choice->num_tokens != oracle->num_tokens || choice->text_bytes != oracle->text_bytes)
        violate(checker, event, "ended early");
    if (checker->request->params.num_prompt_logprobs >= 0 &&
        checker->num_scored != checker->request->num_prompt_tokens)
        violate(checker, event, "prompt not scored to its end");
    bool pooled = checker->request->params.pooling != POOLING_NONE;
    if (pooled != (event->kind == TOKEN_EVENT_EMBEDDING))
        violate(checker, event, "end without embedding");
}

static void hash_event(struct choice_progress *choice, const struct token_event *event) {
    for (int32_t i = 0; i < event->num_tokens; i++)
        choice->tokens_hash = fake_model_hash(choice->tokens_hash, event->tokens[i].token);
    for (size_t i = 0; i < event->text_bytes; i++)
        choice->text_hash = fake_model_hash(choice->text_hash, event->text[i]);
}

static void check_text(struct stream_checker *checker, const struct token_event *event) {
    struct choice_progress *choice = &checker->choices[event->choice];
    const struct oracle_choice *oracle = &choice->oracle;
    const struct sampling_params *params = &checker->request->params;
    const struct requested requested = {
        .num_best = params->num_logprobs,
        .tokens = params->num_logprob_tokens > 0 ? params->logprob_tokens : NULL,
        .num_tokens = params->num_logprob_tokens,
    };
    checker->saw_text = true;
    hash_event(choice, event);
    if (choice->finish != FINISH_NONE)
        violate(checker, event, "event after the end");
    if (choice->num_tokens + event->num_tokens > oracle->num_tokens) {
        violate(checker, event, "more tokens than there should be");
        return;
    }
    for (int32_t i = 0; i < event->num_tokens; i++) {
        int32_t at = choice->num_tokens++;
        if (!record_matches(event, i, oracle->tokens[at], oracle->histories[at], &requested))
            violate(checker, event, "wrong token");
    }
    if (event->num_generated != choice->num_tokens)
        violate(checker, event, "num_generated");
    /* what was held back when a choice was cut off is no prefix of the oracle's text */
    if (!stream_checker_is_cut(event->finish)) {
        if (choice->text_bytes + event->text_bytes > oracle->text_bytes ||
            memcmp(oracle->text + choice->text_bytes, event->text, event->text_bytes) != 0)
            violate(checker, event, "wrong text");
        choice->text_bytes += event->text_bytes;
    }
    if (event->finish != FINISH_NONE)
        check_end(checker, choice, event);
}

static void check_embedding(struct stream_checker *checker, const struct token_event *event) {
    const struct oracle_choice *oracle = &checker->choices[0].oracle;
    if (checker->request->params.pooling == POOLING_NONE || event->num_tokens > 0 ||
        event->text_bytes > 0 || event->finish != FINISH_STOP)
        violate(checker, event, "embedding out of place");
    if (event->num_dimensions != FAKE_HIDDEN_SIZE ||
        memcmp(event->embedding, oracle->embedding, sizeof(oracle->embedding)) != 0)
        violate(checker, event, "wrong embedding");
    check_text(checker, event);
}

/* At least one token of the prompt is computed: the one that the first is sampled from. */
static void check_cached(struct stream_checker *checker, const struct token_event *event) {
    int32_t most = checker->caching ? checker->request->num_prompt_tokens - 1 : 0;
    if (event->num_cached_tokens < checker->num_cached_tokens || event->num_cached_tokens > most)
        violate(checker, event, "number of cached tokens");
    checker->num_cached_tokens = event->num_cached_tokens;
}

bool stream_checker_read(struct stream_checker *checker) {
    struct token_event event;
    token_stream_take(&checker->request->stream, &checker->buffer);
    while (checker->violation[0] == '\0' && token_buffer_next(&checker->buffer, &event)) {
        if (event.choice < 0 || event.choice >= checker->request->params.num_choices)
            violate(checker, &event, "no such choice");
        else if (event.kind == TOKEN_EVENT_PROMPT)
            check_scores(checker, &event);
        else if (event.kind == TOKEN_EVENT_EMBEDDING)
            check_embedding(checker, &event);
        else
            check_text(checker, &event);
        check_cached(checker, &event);
    }
    return checker->violation[0] == '\0';
}
