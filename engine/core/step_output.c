/* Ends, in the order in which they are checked: an end token of the model, a stop token of the
 * request, a grammar with nothing to follow, a stop string, the length. As in vLLM, the first
 * min_tokens tokens can neither be an end nor complete a stop string, and an end token's text is
 * left out (a stop token's is kept with include_stop_string). */
#include "engine/core/step_output.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t max_records(const struct serving_limits *limits) {
    return (size_t)limits->max_num_batched_tokens + 1;
}

static size_t max_top(const struct serving_limits *limits) {
    size_t of_records = max_records(limits) * SAMPLE_MAX_LOGPROBS;
    size_t of_row = logprob_lists_max_of_row(limits);
    return of_records > of_row ? of_records : of_row;
}

size_t step_output_bytes(const struct serving_limits *limits) {
    return max_records(limits) * sizeof(struct token_record) +
           max_top(limits) * sizeof(struct top_logprob);
}

int step_output_init(struct step_output *output, const struct tokenizer *tokenizer,
                     const struct serving_limits *limits) {
    struct step_output made = {
        .tokenizer = tokenizer,
        .records = calloc(max_records(limits), sizeof(*made.records)),
        .top = malloc(max_top(limits) * sizeof(*made.top)),
        .max_top = max_top(limits),
    };
    if (made.records == NULL || made.top == NULL) {
        step_output_finish(&made);
        return -1;
    }
    *output = made;
    return 0;
}

void step_output_finish(struct step_output *output) {
    free(output->records);
    free(output->top);
    memset(output, 0, sizeof(*output));
}

/* Writes what the row says of other tokens: what it lists, of which `num_best` of the
 * likeliest unless that is -1, else what the sample op found. Returns how many. */
static int32_t fill_top(const struct step_rows *rows, int32_t row, int32_t num_best,
                        struct top_logprob *top) {
    const struct sample_row *requested = &rows->requested[row];
    const struct sample_output *sampled = &rows->outputs[row];
    if (requested->num_ranked > 0 && sampled->num_top == requested->num_ranked) {
        memcpy(top, rows->listed_logprobs + requested->first_listed_logprob,
               (size_t)sampled->num_top * sizeof(*top));
        return sampled->num_top;
    }
    for (int32_t i = 0; i < sampled->num_top; i++)
        top[i] = (struct top_logprob){sampled->top_tokens[i], sampled->top_logprobs[i]};
    if (requested->num_listed == 0)
        return sampled->num_top;
    for (int32_t i = 0; i < requested->num_listed; i++)
        top[i] = (struct top_logprob){rows->listed[requested->first_listed + i],
                                      rows->listed_logprobs[requested->first_listed_logprob + i]};
    if (num_best < 0)
        return requested->num_listed;
    num_best = min_int32(num_best, requested->num_listed);
    top_logprobs_sort(top, requested->num_listed, num_best);
    return num_best;
}

/* Adds the row as a record to the event, whose arrays are the output's. */
static void add_record(struct step_output *output, struct token_event *event,
                       const struct step_rows *rows, int32_t row, int32_t num_best) {
    struct token_record *record = &output->records[event->num_tokens++];
    const struct sample_output *sampled = &rows->outputs[row];
    *record = (struct token_record){
        .token = sampled->token,
        .logprob = sampled->logprob,
        .rank = sampled->rank,
        .first_top = event->num_top,
        .num_top = fill_top(rows, row, num_best, output->top + event->num_top),
    };
    event->num_top += record->num_top;
}

static void add_token(struct step_output *output, struct token_event *event, int32_t token) {
    output->records[event->num_tokens++] =
        (struct token_record){.token = token, .logprob = NAN, .first_top = event->num_top};
}

static struct token_event begin_event(const struct step_output *output,
                                      const struct sequence *sequence, enum token_event_kind kind) {
    return (struct token_event){
        .kind = kind,
        .choice = sequence->choice,
        .tokens = output->records,
        .top = output->top,
        .finish = FINISH_NONE,
        .stop_token = -1,
        .stop_string = -1,
        .num_generated = sequence_num_generated(sequence),
        .num_cached_tokens = sequence->group->num_cached_tokens,
        .num_stored_tokens = sequence->group->handover.num_stored_tokens,
    };
}

static int push_scores(struct sequence_group *group, const struct token_event *event) {
    if (event->num_tokens == 0)
        return 0;
    if (token_stream_push(&group->request->stream, event) != 0)
        return -1;
    group->num_scored += event->num_tokens;
    return 0;
}

/* Returns how many top logprobs the row may add to an event. */
static size_t most_top(const struct step_rows *rows, int32_t row) {
    int32_t num_listed = rows->requested[row].num_listed;
    return (size_t)(num_listed > 0 ? num_listed : rows->outputs[row].num_top);
}

int step_output_scores(struct step_output *output, struct sequence *sequence,
                       const struct step_rows *rows) {
    struct sequence_group *group = sequence->group;
    struct token_event event = begin_event(output, sequence, TOKEN_EVENT_PROMPT);
    if (group->num_scored == 0)
        add_token(output, &event, group->request->prompt[0]);
    for (int32_t i = 0; i < rows->count; i++) {
        if ((size_t)event.num_top + most_top(rows, i) > output->max_top) {
            if (push_scores(group, &event) != 0)
                return -1;
            event = begin_event(output, sequence, TOKEN_EVENT_PROMPT);
        }
        add_record(output, &event, rows, i, group->request->params.num_prompt_logprobs);
    }
    return push_scores(group, &event);
}

int step_output_progress(struct step_output *output, struct sequence *sequence) {
    struct token_event event = begin_event(output, sequence, TOKEN_EVENT_PROGRESS);
    event.num_computed = sequence->num_computed;
    return token_stream_push(&sequence->group->request->stream, &event);
}

/* Returns whether the token itself ends the sequence; *out_stop_token is set when the request named
 * it. */
static bool is_end_token(const struct step_output *output, const struct sequence *sequence,
                         int32_t token, int32_t *out_stop_token) {
    const struct sampling_params *params = sequence_params(sequence);
    if (sequence_num_generated(sequence) <= params->min_tokens)
        return false;
    if (!params->ignore_eos && tokenizer_is_eos(output->tokenizer, token))
        return true;
    for (int32_t i = 0; i < params->num_stop_tokens; i++) {
        if (params->stop_tokens[i] == token) {
            *out_stop_token = token;
            return true;
        }
    }
    return false;
}

static struct text visible_text(const struct step_output *output, const struct sequence *sequence,
                                int32_t token, bool ends, const struct token_event *event) {
    const struct sampling_params *params = sequence_params(sequence);
    bool keeps_end = event->stop_token >= 0 && params->include_stop_string;
    bool hidden = params->skip_special_tokens && tokenizer_is_special(output->tokenizer, token);
    if ((ends && !keeps_end) || hidden)
        return (struct text){NULL, 0};
    return tokenizer_piece(output->tokenizer, token);
}

static int add_text(struct step_output *output, struct sequence *sequence, int32_t token, bool ends,
                    struct token_event *event) {
    struct text text = visible_text(output, sequence, token, ends, event);
    unsigned flags = event->finish != FINISH_NONE ? DETOKENIZER_FINAL : 0;
    if (!ends && sequence_num_generated(sequence) > sequence_params(sequence)->min_tokens)
        flags |= DETOKENIZER_MATCH_STOPS;
    struct detokenized released;
    if (detokenizer_push(&sequence->detokenizer, text.data, text.length, flags, &released) != 0)
        return -1;
    event->text = released.text;
    event->text_bytes = released.text_bytes;
    if (released.stop_string >= 0) {
        event->finish = FINISH_STOP;
        event->stop_string = released.stop_string;
    }
    return 0;
}

int step_output_token(struct step_output *output, struct sequence *sequence,
                      const struct step_rows *rows, int32_t row) {
    const struct sampling_params *params = sequence_params(sequence);
    int32_t token = rows->outputs[row].token;
    if (sequence_append(sequence, token) != 0)
        return -1;
    thinking_state_add(&sequence->thinking, &params->thinking,
                       tokenizer_piece(output->tokenizer, token));
    struct token_event event = begin_event(output, sequence, TOKEN_EVENT_TEXT);
    if (params->num_logprobs < 0)
        add_token(output, &event, token);
    else
        add_record(output, &event, rows, row,
                   params->num_logprob_tokens > 0 ? -1 : params->num_logprobs);
    bool ends = is_end_token(output, sequence, token, &event.stop_token);
    if (ends || sequence_is_complete(sequence))
        event.finish = FINISH_STOP;
    else if (sequence->num_tokens >= sequence->max_tokens)
        event.finish = FINISH_LENGTH;
    if (add_text(output, sequence, token, ends, &event) != 0 ||
        token_stream_push(&sequence->group->request->stream, &event) != 0)
        return -1;
    sequence->finish = event.finish;
    sequence->end_pushed = event.finish != FINISH_NONE;
    return 0;
}

int step_output_embedding(struct step_output *output, struct sequence *sequence, float *sum,
                          int32_t hidden_size) {
    struct token_event event = begin_event(output, sequence, TOKEN_EVENT_EMBEDDING);
    if (sequence_params(sequence)->pooling == POOLING_MEAN)
        for (int32_t i = 0; i < hidden_size; i++)
            sum[i] /= (float)sequence->num_tokens;
    event.embedding = sum;
    event.num_dimensions = hidden_size;
    event.finish = FINISH_STOP;
    if (token_stream_push(&sequence->group->request->stream, &event) != 0)
        return -1;
    sequence->finish = event.finish;
    sequence->end_pushed = true;
    return 0;
}

int step_output_end(struct step_output *output, struct sequence *sequence) {
    CHECK(sequence->finish != FINISH_NONE && !sequence->end_pushed);
    struct token_event event = begin_event(output, sequence, TOKEN_EVENT_TEXT);
    struct detokenized released;
    if (detokenizer_push(&sequence->detokenizer, NULL, 0, DETOKENIZER_FINAL, &released) == 0) {
        event.text = released.text;
        event.text_bytes = released.text_bytes;
    }
    event.finish = sequence->finish;
    if (token_stream_push(&sequence->group->request->stream, &event) != 0)
        return -1;
    sequence->end_pushed = true;
    return 0;
}
