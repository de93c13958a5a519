#include "engine/sequence/sequence_group.h"

#include "config/base/check.h"
#include "engine/grammar/machine/grammar_job.h"

#include <stdlib.h>
#include <string.h>

static void init_sequence(struct sequence *sequence, struct sequence_group *group, int32_t choice,
                          const struct group_shape *shape) {
    const struct request *request = group->request;
    sequence->group = group;
    sequence->request = request;
    sequence->choice = choice;
    sequence->is_idle = group->request->params.beam_width > 0 && choice > 0;
    sequence->num_tokens = request->num_prompt_tokens;
    sequence->max_tokens = sequence_token_limit(request, shape->limits->max_model_len);
    sequence->mirostat_mu = 2 * request->params.settings.mirostat_tau;
    sequence->thinking = thinking_state_begin(&request->params.thinking);
    draft_acceptance_init(&sequence->acceptance);
    sequence->model_acceptance.rate = -1;
    detokenizer_init(&sequence->detokenizer, &request->params);
}

/* Returns the next sequence that never had a table; NULL: all others have one, or have finished. */
static struct sequence *next_without_table(struct sequence_group *group) {
    while (group->first_without_table < group->num_sequences) {
        struct sequence *sequence = &group->sequences[group->first_without_table++];
        if (sequence->status != SEQUENCE_FINISHED)
            return sequence;
    }
    return NULL;
}

/* Choice 0 and all beams begin with a table; the tables of a group are alike. */
static int init_tables(struct sequence_group *group, const struct group_shape *shape) {
    const struct request *request = group->request;
    int32_t kv_limit = sequence_kv_limit(request, shape->limits->max_model_len);
    int32_t max_blocks = blocks_for_tokens(kv_limit, shape->limits->block_size);
    struct sequence *first = next_without_table(group);
    if (block_table_init(&first->table, max_blocks, serving_limits_groups(shape->limits),
                         request->tenant, &shape->root) != 0)
        return -1;
    first->table.adapter = shape->adapter;
    group->num_tables = 1;
    while (request->params.beam_width > group->num_tables)
        if (sequence_group_add_table(group) != 0)
            return -1;
    return 0;
}

/* Collects the model's end tokens, unless they are ignored, and the request's; each once. */
static int collect_end_tokens(struct sequence_group *group, const struct group_shape *shape,
                              int32_t *out_count) {
    const struct sampling_params *params = &group->request->params;
    int32_t num_model = params->ignore_eos ? 0 : shape->num_end_tokens, count = 0;
    int32_t *tokens =
        malloc((size_t)(num_model + params->num_stop_tokens + 1) * sizeof(*group->end_tokens));
    if (tokens == NULL)
        return -1;
    for (int32_t i = 0; i < num_model + params->num_stop_tokens; i++) {
        int32_t token = i < num_model ? shape->end_tokens[i] : params->stop_tokens[i - num_model];
        int32_t known = 0;
        while (known < count && tokens[known] != token)
            known++;
        tokens[count] = token;
        count += known == count;
    }
    group->end_tokens = tokens;
    *out_count = count;
    return 0;
}

static int create_beams(struct sequence_group *group, const struct group_shape *shape) {
    const struct request *request = group->request;
    const struct sampling_params *params = &request->params;
    struct beam_params beams = {
        .width = params->beam_width,
        .max_tokens = sequence_token_limit(request, shape->limits->max_model_len) -
                      request->num_prompt_tokens,
        .min_tokens = params->min_tokens,
        .length_penalty = params->length_penalty,
        .early_stopping = params->early_stopping,
        .num_logprobs = params->num_logprobs,
    };
    if (collect_end_tokens(group, shape, &beams.num_end_tokens) != 0)
        return -1;
    beams.end_tokens = group->end_tokens;
    CHECK(beams.width + beams.num_end_tokens <= SAMPLE_MAX_LOGPROBS);
    group->num_candidates = beam_search_num_candidates(&beams);
    group->beams = beam_search_create(&beams);
    return group->beams != NULL ? 0 : -1;
}

static int init_group(struct sequence_group *group, const struct group_shape *shape) {
    const struct sampling_params *params = &group->request->params;
    int32_t count = params->beam_width > 0 ? params->beam_width : params->num_choices;
    group->sequences = calloc((size_t)count, sizeof(*group->sequences));
    if (group->sequences == NULL)
        return -1;
    group->num_sequences = count;
    group->num_unfinished = count;
    group->max_running = count;
    group->num_open = params->num_choices;
    for (int32_t i = 0; i < count; i++)
        init_sequence(&group->sequences[i], group, i, shape);
    if (init_tables(group, shape) != 0)
        return -1;
    return params->beam_width > 0 ? create_beams(group, shape) : 0;
}

struct sequence_group *sequence_group_create(struct request *request,
                                             const struct group_shape *shape) {
    struct sequence_group *group = calloc(1, sizeof(*group));
    if (group == NULL)
        return NULL;
    group->request = request_ref(request);
    if (init_group(group, shape) != 0) {
        sequence_group_destroy(group);
        return NULL;
    }
    return group;
}

void sequence_group_destroy(struct sequence_group *group) {
    if (group == NULL)
        return;
    for (int32_t i = 0; i < group->num_sequences; i++) {
        block_table_finish(&group->sequences[i].table);
        sequence_release(&group->sequences[i]);
    }
    free(group->sequences);
    beam_search_destroy(group->beams);
    free(group->end_tokens);
    request_unref(group->request);
    free(group);
}

int sequence_group_add_table(struct sequence_group *group) {
    const struct block_table *like = &group->sequences[group->first_unfinished].table;
    struct sequence *sequence = next_without_table(group);
    CHECK(sequence != NULL);
    if (block_table_init(&sequence->table, like->max_blocks, like->num_groups, like->tenant,
                         &like->root) != 0) {
        group->first_without_table = sequence->choice;
        return -1;
    }
    sequence->table.adapter = like->adapter;
    group->num_tables++;
    return 0;
}

void sequence_group_note_finished(struct sequence_group *group, struct sequence *sequence) {
    CHECK(sequence->status == SEQUENCE_FINISHED);
    group->num_unfinished--;
    while (group->first_unfinished < group->num_sequences &&
           group->sequences[group->first_unfinished].status == SEQUENCE_FINISHED)
        group->first_unfinished++;
    if (sequence->table.blocks == NULL)
        return;
    struct sequence *heir = next_without_table(group);
    if (heir != NULL) {
        block_table_pass(&sequence->table, &heir->table);
    } else {
        block_table_finish(&sequence->table);
        group->num_tables--;
    }
}

int32_t sequence_group_num_choices(const struct sequence_group *group) {
    return group->request->params.num_choices;
}

struct sequence *sequence_group_leader(const struct sequence_group *group) {
    for (int32_t i = group->first_unfinished; i < group->num_sequences; i++) {
        struct sequence *sequence = &group->sequences[i];
        if (sequence->status != SEQUENCE_FINISHED && !sequence->is_idle)
            return sequence;
    }
    return NULL;
}

struct sequence *sequence_group_find(const struct sequence_group *group, int32_t from,
                                     enum sequence_status status) {
    for (int32_t i = from; i < group->num_sequences; i++)
        if (group->sequences[i].status == status && !group->sequences[i].is_idle)
            return &group->sequences[i];
    return NULL;
}

int32_t sequence_group_count(const struct sequence_group *group, enum sequence_status status) {
    int32_t count = 0;
    for (int32_t i = 0; i < group->num_sequences; i++)
        count += group->sequences[i].status == status && !group->sequences[i].is_idle;
    return count;
}

struct sequence *sequence_group_next_fork(const struct sequence_group *group, int32_t after) {
    const struct sequence *leader = sequence_group_leader(group);
    int32_t num_running = sequence_group_count(group, SEQUENCE_RUNNING);
    if (group->beams != NULL || sequence_num_tokens_ahead(leader) > sequence_num_prompt(leader))
        return NULL;
    for (int32_t i = 0; i < group->num_sequences && num_running < group->max_running; i++) {
        struct sequence *sequence = &group->sequences[i];
        if (sequence->status != SEQUENCE_WAITING || sequence_num_generated(sequence) > 0 ||
            sequence->table.blocks == NULL)
            continue;
        if (i > after)
            return sequence;
        num_running++;
    }
    return NULL;
}

bool sequence_group_is_scoring(const struct sequence_group *group) {
    return group->request->params.num_prompt_logprobs >= 0 &&
           group->num_scored < group->request->num_prompt_tokens;
}

/* Returns whether a sequence waits that forks from the leader at its next token. */
static bool has_fork_due(const struct sequence_group *group) {
    return sequence_group_count(group, SEQUENCE_RUNNING) < group->max_running &&
           sequence_group_find(group, 0, SEQUENCE_WAITING) != NULL;
}

static bool depends_on_flight(const struct sequence *sequence) {
    const struct sequence_in_flight *in_flight = &sequence->in_flight;
    const struct sequence_group *group = sequence->group;
    if (group->num_in_flight == 0)
        return false;
    if (group->beams != NULL || group->num_forking > 0 || in_flight->num_drafts > 0)
        return true;
    if (in_flight->num_tokens > 0 && sequence_params(sequence)->pooling == POOLING_MEAN)
        return true;
    return in_flight->num_samples > 0 && has_fork_due(group);
}

bool sequence_group_is_held(const struct sequence_group *group) {
    const struct grammar *grammar = group->request->params.grammar;
    return group->stalled || (grammar != NULL && grammar_is_busy(grammar));
}

bool sequence_group_can_run(const struct sequence *sequence) {
    return sequence->status == SEQUENCE_RUNNING && !sequence_group_is_held(sequence->group) &&
           !depends_on_flight(sequence);
}

/* The row that scores a token is the one before it. */
int32_t sequence_group_reusable(const struct sequence *sequence) {
    const struct sequence_group *group = sequence->group;
    if (sequence_params(sequence)->pooling == POOLING_MEAN)
        return 0;
    if (sequence->choice == 0 && sequence_group_is_scoring(group))
        return group->num_scored > 0 ? group->num_scored - 1 : 0;
    return sequence->num_tokens - 1;
}

bool sequence_group_before(const struct sequence_group *a, const struct sequence_group *b) {
    const struct request *first = a->request, *second = b->request;
    if (first->share != second->share)
        return a->place != b->place ? a->place < b->place : first->share < second->share;
    if (first->priority != second->priority)
        return first->priority < second->priority;
    return first->id < second->id;
}

void group_list_insert(struct group_list *list, struct sequence_group *group) {
    struct sequence_group *before = list->last;
    while (before != NULL && sequence_group_before(group, before))
        before = before->list_previous;
    struct sequence_group *after = before != NULL ? before->list_next : list->first;
    group->list_previous = before;
    group->list_next = after;
    *(before != NULL ? &before->list_next : &list->first) = group;
    *(after != NULL ? &after->list_previous : &list->last) = group;
    list->count++;
}

void group_list_remove(struct group_list *list, struct sequence_group *group) {
    struct sequence_group *before = group->list_previous, *after = group->list_next;
    *(before != NULL ? &before->list_next : &list->first) = after;
    *(after != NULL ? &after->list_previous : &list->last) = before;
    group->list_previous = NULL;
    group->list_next = NULL;
    list->count--;
}
