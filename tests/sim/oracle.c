#include "tests/sim/oracle.h"

#include "config/base/check.h"
#include "engine/grammar/machine/grammar_machine.h"
#include "engine/sequence/sequence.h"
#include "tests/sim/beam_oracle.h"
#include "tests/sim/dry_oracle.h"
#include "tests/sim/fake_tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether n bytes begin (or are, when n == total) a character of `total` bytes: the code
 * points they can still become must meet the legal ones of that length. */
static bool begins_character(const unsigned char *bytes, int n, int total) {
    static const unsigned char marks[5] = {0, 0x00, 0xc0, 0xe0, 0xf0};
    static const unsigned char masks[5] = {0, 0x80, 0xe0, 0xf0, 0xf8};
    static const uint32_t first[5] = {0, 0, 0x80, 0x800, 0x10000};
    static const uint32_t last[5] = {0, 0x7f, 0x7ff, 0xffff, 0x10ffff};
    if ((bytes[0] & masks[total]) != marks[total])
        return false;
    uint32_t low = bytes[0] & (unsigned char)~masks[total], high = low;
    for (int i = 1; i < total; i++) {
        if (i < n && (bytes[i] & 0xc0) != 0x80)
            return false;
        low = low << 6 | (i < n ? bytes[i] & 0x3fU : 0);
        high = high << 6 | (i < n ? bytes[i] & 0x3fU : 0x3f);
    }
    low = low > first[total] ? low : first[total];
    high = high < last[total] ? high : last[total];
    bool all_surrogates = low >= 0xd800 && high <= 0xdfff;
    return low <= high && !all_surrogates;
}

size_t oracle_decode(const unsigned char *bytes, size_t length, bool final, char *out) {
    size_t used = 0, i = 0;
    while (i < length) {
        int best = 0, whole = 0;
        for (int total = 1; total <= 4; total++) {
            for (int n = 1; n <= total && i + (size_t)n <= length; n++) {
                if (!begins_character(bytes + i, n, total))
                    break;
                best = n > best ? n : best;
                whole = n == total ? n : whole;
            }
        }
        if (whole > 0) {
            memcpy(out + used, bytes + i, (size_t)whole);
            used += (size_t)whole;
            i += (size_t)whole;
            continue;
        }
        if (best > 0 && i + (size_t)best == length && !final)
            break;
        memcpy(out + used, "\xef\xbf\xbd", 3);
        used += 3;
        i += best > 0 ? (size_t)best : 1;
    }
    return used;
}

static bool is_stop_token(const struct sampling_params *params, int32_t token) {
    for (int32_t i = 0; i < params->num_stop_tokens; i++)
        if (params->stop_tokens[i] == token)
            return true;
    return false;
}

/* Returns whether the token would be the end of a bad run. */
static bool completes_bad_run(const struct sampling_params *params, int32_t token,
                              const struct oracle_choice *so_far) {
    for (int32_t i = 0; i < params->num_bad_runs; i++) {
        const struct token_run *run = &params->bad_runs[i];
        int32_t matched = run->tokens[run->count - 1] == token;
        for (int32_t back = 1; back < run->count && back <= so_far->num_tokens; back++)
            matched +=
                run->tokens[run->count - 1 - back] == so_far->tokens[so_far->num_tokens - back];
        if (matched == run->count)
            return true;
    }
    return false;
}

/* Returns where the reasoning begins in the text so far; -1: there is none. */
static int64_t find_reasoning(const struct thinking_budget *budget, const char *text,
                              size_t length) {
    size_t spaces = strspn(text, " \n\r\t"), marker = strlen(budget->begin);
    if (budget->begins_inside)
        return 0;
    bool begins = length >= spaces + marker && memcmp(text + spaces, budget->begin, marker) == 0;
    return begins ? (int64_t)(spaces + marker) : -1;
}

/* The token that must come next to end the reasoning; -1: any may. */
static int32_t find_forced(const struct sampling_params *params,
                           const struct oracle_choice *so_far) {
    const struct thinking_budget *budget = &params->thinking;
    char text[4096] = {0};
    size_t starts[1024], length = 0;
    if (budget->num_end_tokens == 0)
        return -1;
    CHECK(so_far->num_tokens <= 1024);
    for (int32_t i = 0; i < so_far->num_tokens; i++) {
        struct text piece = tokenizer_piece(fake_tokenizer(), so_far->tokens[i]);
        CHECK(length + piece.length < sizeof(text));
        memcpy(text + length, piece.data, piece.length);
        starts[i] = length;
        length += piece.length;
    }
    int64_t begin = find_reasoning(budget, text, length);
    if (begin < 0 ||
        memmem(text + begin, length - (size_t)begin, budget->end, strlen(budget->end)) != NULL)
        return -1;
    int32_t num_inside = 0;
    for (int32_t i = 0; i < so_far->num_tokens; i++)
        num_inside += (int64_t)starts[i] >= begin;
    int32_t beyond = num_inside - budget->max_tokens;
    return beyond < 0 ? -1 : budget->end_tokens[beyond % budget->num_end_tokens];
}

/* Finds what may be sampled by the grammar and the allowed tokens; false: everything. */
static bool find_mask(const struct sampling_params *params, const struct oracle_choice *so_far,
                      struct grammar_state *grammar, uint32_t *out) {
    uint32_t allowed = 0;
    int32_t forced = find_forced(params, so_far);
    for (int32_t i = 0; forced < 0 && i < params->num_allowed_tokens; i++)
        allowed |= UINT32_C(1) << params->allowed_tokens[i];
    if (forced >= 0)
        allowed = UINT32_C(1) << forced;
    *out = allowed;
    if (grammar != NULL) {
        CHECK(grammar_state_mask(grammar, out) == 0);
        if ((*out & allowed) != 0)
            *out &= allowed;
    }
    return grammar != NULL || allowed != 0;
}

/* Bans that leave nothing of the mask are not for its tokens. */
static int32_t forgive(const uint32_t *mask, struct token_bias *biases, int32_t count) {
    uint32_t banned = 0;
    int32_t kept = 0;
    for (int32_t i = 0; i < count; i++)
        if (isinf(biases[i].bias))
            banned |= UINT32_C(1) << biases[i].token;
    for (int32_t i = 0; i < count; i++)
        if ((*mask & ~banned) != 0 || ((banned & *mask) >> biases[i].token) % 2 == 0)
            biases[kept++] = biases[i];
    return kept;
}

static int32_t collect_biases(const struct request *request, const struct oracle_choice *so_far,
                              struct token_bias *out) {
    const struct sampling_params *params = &request->params;
    float penalties[FAKE_VOCAB_SIZE];
    dry_oracle_find(request, so_far->tokens, so_far->num_tokens, penalties);
    int32_t count = 0;
    bool bans = so_far->num_tokens < params->min_tokens;
    for (int32_t token = 0; token < FAKE_VOCAB_SIZE; token++) {
        bool ends = (token < FAKE_NUM_EOS && !params->ignore_eos) || is_stop_token(params, token);
        bool listed = (bans && ends) || completes_bad_run(params, token, so_far);
        float bias = listed ? -INFINITY : 0;
        for (int32_t i = 0; i < params->num_biases && !listed; i++) {
            if (params->biases[i].token == token) {
                bias = params->biases[i].bias;
                listed = true;
            }
        }
        if (listed || penalties[token] > 0)
            out[count++] = (struct token_bias){token, bias - penalties[token]};
    }
    return count;
}

static int32_t collect_counts(const struct request *request, const int32_t *output,
                              int32_t num_output, struct token_count *out) {
    const struct sampling_params *params = &request->params;
    bool repetition = params->settings.repetition_penalty != 1;
    bool any = repetition || params->settings.frequency_penalty != 0 ||
               params->settings.presence_penalty != 0;
    int32_t num_counts = 0;
    for (int32_t token = 0; token < FAKE_VOCAB_SIZE && any; token++) {
        int32_t in_output = 0, in_prompt = 0;
        for (int32_t i = 0; i < num_output; i++)
            in_output += output[i] == token;
        for (int32_t i = 0; i < request->num_prompt_tokens; i++)
            in_prompt += request->prompt[i] == token;
        if (in_output > 0 || (repetition && in_prompt > 0))
            out[num_counts++] = (struct token_count){token, in_output};
    }
    return num_counts;
}

/* Text so far, and the end of the first match that ends after byte `from`. */
static bool find_stop(const struct sampling_params *params, struct oracle_choice *out,
                      size_t from) {
    for (size_t end = from + 1; end <= out->text_bytes; end++) {
        size_t longest = 0;
        for (int32_t i = 0; i < params->num_stop_strings; i++) {
            const struct stop_string *stop = &params->stop_strings[i];
            if (stop->length <= end && stop->length > longest &&
                memcmp(out->text + end - stop->length, stop->data, stop->length) == 0) {
                longest = stop->length;
                out->stop_string = i;
            }
        }
        if (longest > 0) {
            out->text_bytes = params->include_stop_string ? end : end - longest;
            return true;
        }
    }
    return false;
}

struct byte_string {
    unsigned char *data;
    size_t length;
};

static void add_piece(const struct sampling_params *params, int32_t token,
                      struct byte_string *bytes) {
    struct text piece = tokenizer_piece(fake_tokenizer(), token);
    if (token <= FAKE_SPECIAL && params->skip_special_tokens)
        return;
    memcpy(bytes->data + bytes->length, piece.data, piece.length);
    bytes->length += piece.length;
}

/* Takes one more token into account. Returns false when it was the last. */
static bool accept_token(const struct request *request, int32_t token, int32_t most, bool complete,
                         struct byte_string *bytes, struct oracle_choice *out) {
    const struct sampling_params *params = &request->params;
    bool may_end = out->num_tokens > params->min_tokens;
    bool eos = may_end && !params->ignore_eos && token < FAKE_NUM_EOS;
    bool stop = may_end && !eos && is_stop_token(params, token);
    bool full = out->num_tokens == most;
    if (!eos && (!stop || params->include_stop_string))
        add_piece(params, token, bytes);
    size_t before = out->text_bytes;
    out->text_bytes =
        oracle_decode(bytes->data, bytes->length, eos || stop || full || complete, out->text);
    if (eos || stop) {
        out->finish = FINISH_STOP;
        out->stop_token = stop ? token : -1;
    } else if (may_end && find_stop(params, out, before)) {
        out->finish = FINISH_STOP;
    } else if (complete) {
        out->finish = FINISH_STOP;
    } else if (full) {
        out->finish = FINISH_LENGTH;
    }
    return out->finish == FINISH_NONE;
}

/* The embedding, and what else a request without output has. */
static void pool_prompt(const struct request *request, struct oracle_choice *out) {
    uint64_t history = 0;
    float sum[FAKE_HIDDEN_SIZE] = {0};
    out->finish = FINISH_STOP;
    for (int32_t i = 0; i < request->num_prompt_tokens; i++) {
        history = fake_model_hash(history, request->prompt[i]);
        for (int d = 0; d < FAKE_HIDDEN_SIZE; d++) {
            float state = fake_model_state(history, d);
            sum[d] = request->params.pooling == POOLING_MEAN ? sum[d] + state : state;
        }
    }
    for (int d = 0; d < FAKE_HIDDEN_SIZE; d++)
        out->embedding[d] = request->params.pooling == POOLING_MEAN
                                ? sum[d] / (float)request->num_prompt_tokens
                                : sum[d];
}

static int32_t most_tokens(const struct request *request, int32_t max_model_len) {
    int32_t most = max_model_len - request->num_prompt_tokens;
    return request->params.max_tokens < most ? request->params.max_tokens : most;
}

/* Room for so many tokens and their text. */
static struct byte_string begin_choice(int32_t most, struct oracle_choice *out) {
    size_t room = (size_t)most + 1;
    struct byte_string bytes = {malloc(room * 8), 0};
    *out = (struct oracle_choice){
        .tokens = malloc(room * sizeof(int32_t)),
        .histories = malloc(room * sizeof(uint64_t)),
        .text = malloc(room * 24),
        .finish = most == 0 ? FINISH_LENGTH : FINISH_NONE,
        .stop_token = -1,
        .stop_string = -1,
    };
    CHECK(bytes.data != NULL && out->tokens != NULL && out->histories != NULL && out->text != NULL);
    return bytes;
}

static uint64_t hash_prompt(const struct request *request) {
    uint64_t history = 0;
    for (int32_t i = 0; i < request->num_prompt_tokens; i++)
        history = fake_model_hash(history, request->prompt[i]);
    return history;
}

static void add_token(struct oracle_choice *out, int32_t token, uint64_t *history) {
    out->histories[out->num_tokens] = *history;
    out->tokens[out->num_tokens++] = token;
    *history = fake_model_hash(*history, token);
}

/* The token that follows what the choice has so far. */
static int32_t draw_token(const struct request *request, int32_t choice,
                          const struct oracle_choice *so_far, struct grammar_state *grammar,
                          uint64_t history, float mu) {
    const struct sampling_params *params = &request->params;
    struct token_count counts[FAKE_VOCAB_SIZE];
    struct token_bias biases[FAKE_VOCAB_SIZE];
    uint32_t mask;
    int32_t num_biases = collect_biases(request, so_far, biases);
    bool is_masked = find_mask(params, so_far, grammar, &mask);
    struct fake_sample sample = {
        .seed = params->seed + (uint64_t)choice * UINT64_C(0x9e3779b97f4a7c15),
        .position = (uint64_t)(request->num_prompt_tokens + so_far->num_tokens),
        .counts = counts,
        .num_counts = collect_counts(request, so_far->tokens, so_far->num_tokens, counts),
        .biases = biases,
        .num_biases = is_masked ? forgive(&mask, biases, num_biases) : num_biases,
        .mirostat_mu = params->settings.mirostat != 0 ? mu : 0,
        .mask = is_masked ? &mask : NULL,
    };
    return fake_model_sample(history, &sample);
}

/* The engine is to find them by itself. */
static void forget_masks(struct grammar *grammar) {
    CHECK(grammar->machine->users == NULL);
    grammar_machine_destroy(grammar->machine);
    grammar->machine = NULL;
}

/* Finds what the grammar leaves no choice about after the tokens so far. */
static void find_forced_tokens(const struct sampling_params *params, struct grammar_state *grammar,
                               struct forced_tokens *out) {
    bool may_force = grammar != NULL && params->settings.mirostat == 0 &&
                     params->num_allowed_tokens == 0 && params->num_bad_runs == 0 &&
                     params->thinking.num_end_tokens == 0;
    out->count = may_force ? grammar_state_forced(grammar, out->tokens, MAX_FORCED_TOKENS) : 0;
}

static void draw_choice(const struct request *request, int32_t choice, int32_t most,
                        const struct grammar_vocabulary *vocabulary, struct oracle_choice *out) {
    const struct sampling_params *params = &request->params;
    struct byte_string bytes = begin_choice(most, out);
    uint64_t history = hash_prompt(request);
    if (params->pooling != POOLING_NONE)
        pool_prompt(request, out);
    struct grammar_state *grammar =
        params->grammar != NULL ? grammar_state_create(params->grammar, vocabulary) : NULL;
    bool goes_on = most > 0;
    float mu = 2 * params->settings.mirostat_tau;
    struct forced_tokens forced = {.count = 0};
    int32_t num_used = 0;
    while (goes_on) {
        int32_t token = num_used < forced.count
                            ? forced.tokens[num_used++]
                            : draw_token(request, choice, out, grammar, history, mu);
        mu = fake_model_next_mu(mu, token);
        add_token(out, token, &history);
        CHECK(grammar == NULL || grammar_state_accept(grammar, token) == 0);
        if (num_used == forced.count) {
            find_forced_tokens(params, grammar, &forced);
            num_used = 0;
        }
        bool complete = grammar != NULL && grammar_state_is_final(grammar);
        goes_on = accept_token(request, token, most, complete, &bytes, out);
    }
    grammar_state_destroy(grammar);
    if (params->grammar != NULL)
        forget_masks(params->grammar);
    free(bytes.data);
}

static void search_choices(const struct request *request, int32_t most, struct oracle_choice *out) {
    struct beam_oracle_path paths[BEAM_MAX_CANDIDATES];
    int32_t num_paths = beam_oracle_run(request, most, paths);
    CHECK(num_paths >= request->params.num_choices);
    for (int32_t i = 0; i < request->params.num_choices; i++) {
        struct byte_string bytes = begin_choice(most, &out[i]);
        uint64_t history = hash_prompt(request);
        bool goes_on = true;
        for (int32_t t = 0; t < paths[i].count; t++) {
            CHECK(goes_on);
            add_token(&out[i], paths[i].tokens[t], &history);
            goes_on = accept_token(request, paths[i].tokens[t], most, false, &bytes, &out[i]);
        }
        CHECK(!goes_on);
        free(bytes.data);
    }
    for (int32_t i = 0; i < num_paths; i++)
        free(paths[i].tokens);
}

void oracle_run(const struct request *request, int32_t max_model_len,
                const struct grammar_vocabulary *vocabulary, struct oracle_choice *out) {
    int32_t most = most_tokens(request, max_model_len);
    if (request->params.beam_width > 0 && most > 0) {
        search_choices(request, most, out);
        return;
    }
    for (int32_t i = 0; i < request->params.num_choices; i++)
        draw_choice(request, i, most, vocabulary, &out[i]);
}

void oracle_finish(struct oracle_choice *choice) {
    free(choice->tokens);
    free(choice->histories);
    free(choice->text);
    memset(choice, 0, sizeof(*choice));
}
