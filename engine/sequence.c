#include "engine/sequence.h"

#include "config/check.h"
#include "engine/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_OUTPUT_CAPACITY 64

int32_t sequence_token_limit(const struct request *request, int32_t max_model_len) {
    int64_t most = (int64_t)request->num_prompt_tokens + request->params.max_tokens;
    return most < max_model_len ? (int32_t)most : max_model_len;
}

int32_t sequence_kv_limit(const struct request *request, int32_t max_model_len) {
    int32_t most = sequence_token_limit(request, max_model_len);
    return most > request->num_prompt_tokens ? most - 1 : most;
}

static int count_prompt(struct sequence *sequence) {
    const struct request *request = sequence->group->request;
    if (!sampling_params_count_prompt(&request->params))
        return 0;
    for (int32_t i = 0; i < request->num_prompt_tokens; i++)
        if (token_counts_add(&sequence->counts, request->prompt[i], 0) != 0)
            return -1;
    return 0;
}

static int init_sequence(struct sequence *sequence, struct sequence_group *group, int32_t choice,
                         int32_t max_model_len, int32_t block_size) {
    const struct request *request = group->request;
    sequence->group = group;
    sequence->choice = choice;
    sequence->num_tokens = request->num_prompt_tokens;
    sequence->max_tokens = sequence_token_limit(request, max_model_len);
    detokenizer_init(&sequence->detokenizer, &request->params);
    int32_t kv_limit = sequence_kv_limit(request, max_model_len);
    if (block_table_init(&sequence->table, block_table_blocks_for(kv_limit, block_size)) != 0)
        return -1;
    return count_prompt(sequence);
}

struct sequence_group *sequence_group_create(struct request *request, int32_t max_model_len,
                                             int32_t block_size) {
    int32_t num_choices = request->params.num_choices;
    struct sequence_group *group = calloc(1, sizeof(*group));
    if (group == NULL)
        return NULL;
    group->request = request_ref(request);
    group->sequences = calloc((size_t)num_choices, sizeof(*group->sequences));
    if (group->sequences == NULL)
        goto fail;
    group->num_open = num_choices;
    for (int32_t i = 0; i < num_choices; i++)
        if (init_sequence(&group->sequences[i], group, i, max_model_len, block_size) != 0)
            goto fail;
    return group;
fail:
    sequence_group_destroy(group);
    return NULL;
}

void sequence_group_destroy(struct sequence_group *group) {
    if (group == NULL)
        return;
    int32_t num_sequences = group->sequences != NULL ? group->request->params.num_choices : 0;
    for (int32_t i = 0; i < num_sequences; i++) {
        struct sequence *sequence = &group->sequences[i];
        block_table_finish(&sequence->table);
        detokenizer_finish(&sequence->detokenizer);
        token_counts_finish(&sequence->counts);
        grammar_state_destroy(sequence->grammar);
        free(sequence->output);
        free(sequence->pool);
    }
    free(group->sequences);
    request_unref(group->request);
    free(group);
}

const struct sampling_params *sequence_params(const struct sequence *sequence) {
    return &sequence->group->request->params;
}

int32_t sequence_token(const struct sequence *sequence, int32_t position) {
    const struct request *request = sequence->group->request;
    CHECK(position >= 0 && position < sequence->num_tokens);
    return position < request->num_prompt_tokens
               ? request->prompt[position]
               : sequence->output[position - request->num_prompt_tokens];
}

int32_t sequence_num_generated(const struct sequence *sequence) {
    return sequence->num_tokens - sequence->group->request->num_prompt_tokens;
}

int32_t sequence_num_pending(const struct sequence *sequence) {
    return sequence->num_tokens - sequence->num_computed;
}

bool sequence_group_is_scoring(const struct sequence_group *group) {
    return group->request->params.num_prompt_logprobs >= 0 &&
           group->num_scored < group->request->num_prompt_tokens;
}

bool sequence_can_run(const struct sequence *sequence) {
    const struct sequence_group *group = sequence->group;
    return !group->stalled && (sequence->choice == 0 || !sequence_group_is_scoring(group));
}

static int reserve_output(struct sequence *sequence, int32_t count) {
    if (count <= sequence->output_capacity)
        return 0;
    int32_t capacity =
        sequence->output_capacity > 0 ? sequence->output_capacity : FIRST_OUTPUT_CAPACITY;
    while (capacity < count)
        capacity = capacity <= INT32_MAX / 2 ? capacity * 2 : INT32_MAX;
    int32_t *output = realloc(sequence->output, (size_t)capacity * sizeof(*output));
    if (output == NULL)
        return -1;
    sequence->output = output;
    sequence->output_capacity = capacity;
    return 0;
}

static bool accepts(struct sequence *sequence, int32_t token) {
    return sequence_params(sequence)->grammar == NULL ||
           (sequence->grammar != NULL && grammar_state_accept(sequence->grammar, token) == 0);
}

int sequence_append(struct sequence *sequence, int32_t token) {
    CHECK(sequence->num_tokens < sequence->max_tokens);
    int32_t num_generated = sequence_num_generated(sequence);
    if (reserve_output(sequence, num_generated + 1) != 0 || !accepts(sequence, token))
        return -1;
    if (sampling_params_count_output(sequence_params(sequence)) &&
        token_counts_add(&sequence->counts, token, 1) != 0)
        return -1;
    sequence->output[num_generated] = token;
    sequence->num_tokens++;
    return 0;
}

int sequence_keep_pool(struct sequence *sequence, const float *sum, int32_t hidden_size) {
    size_t bytes = (size_t)hidden_size * sizeof(*sum);
    if (sequence->pool == NULL)
        sequence->pool = malloc(bytes);
    if (sequence->pool == NULL)
        return -1;
    memcpy(sequence->pool, sum, bytes);
    return 0;
}

bool sequence_is_complete(const struct sequence *sequence) {
    return sequence->grammar != NULL && grammar_state_is_final(sequence->grammar);
}

bool sequence_before(const struct sequence *a, const struct sequence *b) {
    const struct request *first = a->group->request, *second = b->group->request;
    if (first->priority != second->priority)
        return first->priority < second->priority;
    if (first->id != second->id)
        return first->id < second->id;
    return a->choice < b->choice;
}

void sequence_list_insert(struct sequence_list *list, struct sequence *sequence) {
    struct sequence *before = list->last;
    while (before != NULL && sequence_before(sequence, before))
        before = before->previous;
    struct sequence *after = before != NULL ? before->next : list->first;
    sequence->previous = before;
    sequence->next = after;
    *(before != NULL ? &before->next : &list->first) = sequence;
    *(after != NULL ? &after->previous : &list->last) = sequence;
    list->count++;
}

void sequence_list_remove(struct sequence_list *list, struct sequence *sequence) {
    struct sequence *before = sequence->previous, *after = sequence->next;
    *(before != NULL ? &before->next : &list->first) = after;
    *(after != NULL ? &after->previous : &list->last) = before;
    sequence->previous = NULL;
    sequence->next = NULL;
    list->count--;
}
