/* Ends, in the order in which they are looked at: an end token of the model, a stop token of the
 * request, a grammar with nothing to follow, a stop string, the length. As in vLLM, the first
 * min_tokens tokens can neither be an end nor complete a stop string, and an end token's text is
 * left out (a stop token's is kept with include_stop_string). */
#include "engine/step_output.h"

#include "config/check.h"
#include "config/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int step_output_init(struct step_output *output, const struct tokenizer *tokenizer,
                     int32_t max_num_batched_tokens) {
    size_t num_records = (size_t)max_num_batched_tokens + 1, top_bytes;
    if (!checked_mul(num_records, SAMPLE_MAX_LOGPROBS * sizeof(struct top_logprob), &top_bytes))
        return -1;
    struct step_output made = {
        .tokenizer = tokenizer,
        .records = calloc(num_records, sizeof(*made.records)),
        .top = malloc(top_bytes),
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

/* Adds one record to the event, whose arrays are the output's. */
static void add_record(struct step_output *output, struct token_event *event,
                       const struct sample_output *row, bool with_logprob) {
    struct token_record *record = &output->records[event->num_tokens++];
    *record = (struct token_record){
        .token = row->token,
        .logprob = with_logprob ? row->logprob : NAN,
        .rank = with_logprob ? row->rank : 0,
        .first_top = event->num_top,
        .num_top = with_logprob ? row->num_top : 0,
    };
    CHECK(record->num_top <= SAMPLE_MAX_LOGPROBS);
    for (int32_t i = 0; i < record->num_top; i++)
        output->top[event->num_top++] =
            (struct top_logprob){row->top_tokens[i], row->top_logprobs[i]};
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
    };
}

int step_output_scores(struct step_output *output, struct sequence *sequence,
                       const struct sample_output *rows, int32_t num_rows) {
    struct sequence_group *group = sequence->group;
    struct token_event event = begin_event(output, sequence, TOKEN_EVENT_PROMPT);
    if (group->num_scored == 0) {
        struct sample_output first = {.token = group->request->prompt[0]};
        add_record(output, &event, &first, false);
    }
    for (int32_t i = 0; i < num_rows; i++)
        add_record(output, &event, &rows[i], true);
    if (event.num_tokens == 0)
        return 0;
    if (token_stream_push(&group->request->stream, &event) != 0)
        return -1;
    group->num_scored += event.num_tokens;
    return 0;
}

/* Whether the token itself ends the sequence; *out_stop_token is set when the request named it. */
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
                      const struct sample_output *row) {
    if (sequence_append(sequence, row->token) != 0)
        return -1;
    struct token_event event = begin_event(output, sequence, TOKEN_EVENT_TEXT);
    add_record(output, &event, row, sequence_params(sequence)->num_logprobs >= 0);
    bool ends = is_end_token(output, sequence, row->token, &event.stop_token);
    if (ends || sequence_is_complete(sequence))
        event.finish = FINISH_STOP;
    else if (sequence->num_tokens >= sequence->max_tokens)
        event.finish = FINISH_LENGTH;
    if (add_text(output, sequence, row->token, ends, &event) != 0 ||
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
