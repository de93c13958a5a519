#include "tests/sim/fake_drafter.h"

#include "config/base/check.h"

#include <stddef.h>
#include <string.h>

/* A request's prompt is not copied: it tells whose history it is. */
static const struct stream_checker *find_checker(const struct fake_drafter *fake,
                                                 const struct token_view *history) {
    int32_t i = 0;
    while (i < fake->num_checkers && fake->checkers[i]->request->prompt != history->prompt)
        i++;
    CHECK(i < fake->num_checkers);
    return fake->checkers[i];
}

static bool begins_alike(const struct oracle_choice *oracle, const struct token_view *history) {
    size_t bytes = (size_t)history->num_output * sizeof(*history->output);
    return history->num_output < oracle->num_tokens &&
           memcmp(history->output, oracle->tokens, bytes) == 0;
}

/* Returns the first choice whose output begins as the history does, or NULL. */
static const struct oracle_choice *find_choice(const struct stream_checker *checker,
                                               const struct token_view *history) {
    for (int32_t c = 0; c < checker->request->params.num_choices; c++)
        if (begins_alike(&checker->choices[c].oracle, history))
            return &checker->choices[c].oracle;
    return NULL;
}

static int32_t draw_token(struct fake_drafter *fake) {
    return random_range(&fake->random, 0, FAKE_VOCAB_SIZE - 1);
}

/* Returns a token that follows the history in no choice. */
static int32_t find_wrong(const struct stream_checker *checker, const struct token_view *history) {
    bool is_right[FAKE_VOCAB_SIZE] = {false};
    int32_t wrong = 0;
    for (int32_t c = 0; c < checker->request->params.num_choices; c++)
        if (begins_alike(&checker->choices[c].oracle, history))
            is_right[checker->choices[c].oracle.tokens[history->num_output]] = true;
    while (wrong < FAKE_VOCAB_SIZE && is_right[wrong])
        wrong++;
    return wrong % FAKE_VOCAB_SIZE;
}

static int32_t draft(struct fake_drafter *fake, const struct oracle_choice *oracle, int32_t at) {
    bool lies = fake->kind == FAKE_DRAFTS_WRONG ||
                (fake->kind == FAKE_DRAFTS_MIXED && random_once_in(&fake->random, 3));
    return lies || at >= oracle->num_tokens ? draw_token(fake) : oracle->tokens[at];
}

static int32_t propose(struct drafter *drafter, const struct token_view *history,
                       int32_t max_tokens, int32_t *out_tokens) {
    struct fake_drafter *fake = (struct fake_drafter *)drafter;
    const struct stream_checker *checker = find_checker(fake, history);
    const struct oracle_choice *oracle = find_choice(checker, history);
    int32_t count =
        fake->kind == FAKE_DRAFTS_MIXED ? random_range(&fake->random, 0, max_tokens) : max_tokens;
    if (oracle == NULL) /* a wrong token, which the checker will find */
        return 0;
    for (int32_t i = 0; i < count; i++)
        out_tokens[i] = draft(fake, oracle, history->num_output + i);
    if (fake->kind == FAKE_DRAFTS_WRONG)
        out_tokens[0] = find_wrong(checker, history);
    return count;
}

static void destroy(struct drafter *drafter) {
    (void)drafter;
}

void fake_drafter_init(struct fake_drafter *fake, enum fake_drafts kind, uint64_t seed) {
    static const struct drafter_ops ops = {.propose = propose, .destroy = destroy};
    *fake = (struct fake_drafter){.base = {.ops = &ops}, .kind = kind, .random = random_from(seed)};
}

void fake_drafter_add(struct fake_drafter *fake, const struct stream_checker *checker) {
    CHECK(fake->num_checkers < FAKE_DRAFTER_MAX_REQUESTS);
    fake->checkers[fake->num_checkers++] = checker;
}
