/* One step takes candidates best first: every running slot has its row of continuations in falling
 * order, so the best is at the head of one of the rows. It stops as soon as `width` were found that
 * continue.
 *
 * Why the row's top width + num_end_tokens are enough: a step uses the first `width` candidates and
 * the first `width` that do not end. A candidate after that many others of its own row has at least
 * `width` before it that do not end, so it is in neither set; and banning end tokens only takes
 * away some of the at most num_end_tokens others.
 *
 * Equal sums: the better beam of the step before first, as in Transformers, whichever slots they
 * are in; within a slot the row's order. The search is over by the heuristic only when `width` have
 * finished, since until then the worst of Transformers' finished scores is a placeholder of -1e9.
 */
#include "engine/sequence/beam_search.h"

#include "config/base/check.h"
#include "engine/sequence/beam_trellis.h"

#include <math.h>
#include <stdlib.h>

struct beam_slot {
    bool runs, has_row;
    double sum;   /* of its tokens' log probabilities */
    int32_t rank; /* among the beams that continued in the step before, 0: the best */
    int32_t node; /* its last token; a reference */
    int32_t next; /* the first entry of row that was not taken in this step */
    struct sample_output row;
};

struct candidate {
    int32_t slot, entry; /* of that slot's row */
    double sum;
    bool ends;
};

/* A beam that continues, before it has a slot. */
struct continuation {
    int32_t from;
    double sum;
    int32_t node; /* a reference */
};

struct finished {
    double score;
    int32_t node; /* a reference */
    bool ended;
};

struct beam_search {
    struct beam_params params;
    struct beam_trellis trellis;
    struct beam_slot slots[BEAM_MAX_CANDIDATES];
    struct finished finished[BEAM_MAX_CANDIDATES]; /* best first */
    int32_t num_finished;
    int32_t num_tokens; /* generated, of every running beam */
    bool over;
    struct token_record *tokens; /* of the hypothesis read last */
    struct top_logprob *top;
};

struct beam_search *beam_search_create(const struct beam_params *params) {
    CHECK(params->width >= 1 && params->max_tokens >= 1 && params->num_end_tokens >= 0);
    CHECK(params->num_logprobs <= SAMPLE_MAX_LOGPROBS);
    CHECK(beam_search_num_candidates(params) <= BEAM_MAX_CANDIDATES);
    struct beam_search *search = calloc(1, sizeof(*search));
    if (search == NULL)
        return NULL;
    search->params = *params;
    beam_trellis_init(&search->trellis, params->num_logprobs > 0 ? params->num_logprobs : 0);
    search->slots[0] = (struct beam_slot){.runs = true, .node = BEAM_TRELLIS_ROOT};
    return search;
}

void beam_search_destroy(struct beam_search *search) {
    if (search == NULL)
        return;
    beam_trellis_finish(&search->trellis);
    free(search->tokens);
    free(search->top);
    free(search);
}

int32_t beam_search_num_candidates(const struct beam_params *params) {
    int32_t needed = params->width + params->num_end_tokens;
    return needed > params->num_logprobs ? needed : params->num_logprobs;
}

void beam_search_set_row(struct beam_search *search, int32_t slot,
                         const struct sample_output *row) {
    CHECK(slot >= 0 && slot < search->params.width && search->slots[slot].runs);
    CHECK(row->num_top >= 1 && row->num_top <= SAMPLE_MAX_LOGPROBS);
    search->slots[slot].row = *row;
    search->slots[slot].has_row = true;
}

bool beam_search_is_ready(const struct beam_search *search) {
    for (int32_t i = 0; i < search->params.width; i++)
        if (search->slots[i].runs && !search->slots[i].has_row)
            return false;
    return !search->over;
}

/* --- Candidates --- */

static bool is_end(const struct beam_params *params, int32_t token) {
    for (int32_t i = 0; i < params->num_end_tokens; i++)
        if (params->end_tokens[i] == token)
            return true;
    return false;
}

/* Returns the log probability of one of the row's entries; for NaN, the lowest there is. */
static double entry_logprob(const struct sample_output *row, int32_t entry) {
    return isnan(row->top_logprobs[entry]) ? -INFINITY : (double)row->top_logprobs[entry];
}

/* Finds the best one of this slot that was not taken; false when there is none. */
static bool slot_head(const struct beam_search *search, int32_t index, bool ends_banned,
                      struct candidate *out) {
    const struct beam_slot *slot = &search->slots[index];
    for (int32_t i = slot->next; slot->runs && i < slot->row.num_top; i++) {
        bool ends = is_end(&search->params, slot->row.top_tokens[i]);
        if (ends && ends_banned)
            continue;
        double sum = slot->sum + entry_logprob(&slot->row, i);
        *out = (struct candidate){.slot = index, .entry = i, .sum = sum, .ends = ends};
        return true;
    }
    return false;
}

static bool is_better(const struct beam_search *search, const struct candidate *a,
                      const struct candidate *b) {
    if (a->sum != b->sum)
        return a->sum > b->sum;
    return search->slots[a->slot].rank < search->slots[b->slot].rank;
}

/* Takes the best of all slots; false when none is left. */
static bool next_candidate(struct beam_search *search, bool ends_banned, struct candidate *out) {
    bool found = false;
    for (int32_t i = 0; i < search->params.width; i++) {
        struct candidate head;
        if (!slot_head(search, i, ends_banned, &head) || (found && !is_better(search, &head, out)))
            continue;
        *out = head;
        found = true;
    }
    if (found)
        search->slots[out->slot].next = out->entry + 1;
    return found;
}

/* Before min_tokens nothing may end, unless the vocabulary is nothing but end tokens. */
static bool are_ends_banned(const struct beam_search *search) {
    if (search->num_tokens >= search->params.min_tokens)
        return false;
    struct candidate head;
    for (int32_t i = 0; i < search->params.width; i++)
        if (slot_head(search, i, true, &head))
            return true;
    return false;
}

/* Counts as the sampler does: one more than there are with a higher log probability. */
static int32_t entry_rank(const struct sample_output *row, int32_t entry) {
    int32_t rank = entry + 1;
    while (rank > 1 && row->top_logprobs[rank - 2] == row->top_logprobs[entry])
        rank--;
    return rank;
}

/* Adds a node for the candidate's token. */
static int32_t add_node(struct beam_search *search, const struct candidate *candidate) {
    const struct sample_output *row = &search->slots[candidate->slot].row;
    int32_t index = beam_trellis_add(&search->trellis, search->slots[candidate->slot].node);
    struct beam_node *node = &search->trellis.nodes[index];
    node->token = row->top_tokens[candidate->entry];
    node->logprob = NAN;
    if (search->params.num_logprobs < 0)
        return index;
    node->logprob = row->top_logprobs[candidate->entry];
    node->rank = entry_rank(row, candidate->entry);
    node->num_top =
        row->num_top < search->params.num_logprobs ? row->num_top : search->params.num_logprobs;
    for (int32_t i = 0; i < node->num_top; i++)
        beam_trellis_top(&search->trellis, index)[i] =
            (struct top_logprob){row->top_tokens[i], row->top_logprobs[i]};
    return index;
}

/* --- Finished beams --- */

static double length_score(const struct beam_search *search, double sum, int32_t num_tokens) {
    double score = sum / pow(num_tokens, search->params.length_penalty);
    return isnan(score) ? -INFINITY : score;
}

/* Keeps it if it is among the best `width`. */
static void finish_candidate(struct beam_search *search, const struct candidate *candidate) {
    struct finished *finished = search->finished;
    double score = length_score(search, candidate->sum, search->num_tokens + 1);
    if (search->num_finished == search->params.width) {
        if (score <= finished[search->num_finished - 1].score)
            return;
        beam_trellis_unref(&search->trellis, finished[--search->num_finished].node);
    }
    int32_t place = search->num_finished++;
    for (; place > 0 && finished[place - 1].score < score; place--)
        finished[place] = finished[place - 1];
    finished[place] = (struct finished){
        .score = score, .node = add_node(search, candidate), .ended = candidate->ends};
}

/* Returns whether no running beam, of which the best has this sum, is expected to change the
 * result. */
static bool is_settled(const struct beam_search *search, double best_sum) {
    const struct beam_params *params = &search->params;
    if (search->num_finished < params->width)
        return false;
    if (params->early_stopping == EARLY_STOPPING_TRUE)
        return true;
    bool longest = params->early_stopping == EARLY_STOPPING_NEVER && params->length_penalty > 0.0;
    int32_t num_tokens = longest ? params->max_tokens : search->num_tokens;
    return length_score(search, best_sum, num_tokens) <= search->finished[params->width - 1].score;
}

/* --- Steps --- */

/* Finishes and continues candidates; returns how many of out[width] continue, best first. */
static int32_t choose(struct beam_search *search, struct continuation *out) {
    bool ends_banned = are_ends_banned(search);
    bool is_last = search->num_tokens + 1 >= search->params.max_tokens;
    int32_t width = search->params.width, num_chosen = 0;
    struct candidate candidate;
    for (int32_t place = 0; num_chosen < width; place++) {
        if (!next_candidate(search, ends_banned, &candidate))
            break;
        bool finishes = candidate.ends || is_last;
        if (finishes && place < width)
            finish_candidate(search, &candidate);
        else if (!finishes)
            out[num_chosen++] =
                (struct continuation){candidate.slot, candidate.sum, add_node(search, &candidate)};
    }
    return num_chosen;
}

static void clear_slots(struct beam_search *search) {
    for (int32_t i = 0; i < search->params.width; i++) {
        if (search->slots[i].runs)
            beam_trellis_unref(&search->trellis, search->slots[i].node);
        search->slots[i] = (struct beam_slot){.runs = false};
    }
}

static void enter_slot(struct beam_search *search, int32_t slot, const struct continuation *beams,
                       int32_t rank, struct beam_move *out) {
    const struct continuation *beam = &beams[rank];
    search->slots[slot] =
        (struct beam_slot){.runs = true, .sum = beam->sum, .rank = rank, .node = beam->node};
    out[slot] = (struct beam_move){beam->from, search->trellis.nodes[beam->node].token};
}

/* The best continuation of a slot stays in it; the others go to the slots left over. */
static void assign_slots(struct beam_search *search, const struct continuation *beams,
                         int32_t num_beams, struct beam_move *out) {
    bool stays[BEAM_MAX_CANDIDATES] = {false};
    for (int32_t i = 0; i < search->params.width; i++)
        out[i] = (struct beam_move){-1, -1};
    for (int32_t i = 0; i < num_beams; i++) {
        stays[i] = out[beams[i].from].from < 0;
        if (stays[i])
            enter_slot(search, beams[i].from, beams, i, out);
    }
    int32_t slot = 0;
    for (int32_t i = 0; i < num_beams; i++) {
        if (stays[i])
            continue;
        while (out[slot].from >= 0)
            slot++;
        enter_slot(search, slot, beams, i, out);
    }
}

int beam_search_advance(struct beam_search *search, struct beam_move *out) {
    CHECK(beam_search_is_ready(search));
    struct continuation beams[BEAM_MAX_CANDIDATES];
    if (beam_trellis_reserve(&search->trellis, 2 * search->params.width) != 0)
        return -1;
    int32_t num_beams = choose(search, beams);
    search->num_tokens++;
    clear_slots(search);
    search->over = num_beams == 0 || is_settled(search, beams[0].sum);
    for (int32_t i = 0; search->over && i < num_beams; i++)
        beam_trellis_unref(&search->trellis, beams[i].node);
    if (search->over)
        return 1;
    assign_slots(search, beams, num_beams, out);
    return 0;
}

/* --- What was found --- */

int32_t beam_search_num_hypotheses(const struct beam_search *search) {
    CHECK(search->over);
    return search->num_finished;
}

static int reserve_hypothesis(struct beam_search *search, int32_t num_tokens, size_t num_top) {
    struct token_record *tokens =
        realloc(search->tokens, (size_t)num_tokens * sizeof(*search->tokens));
    if (tokens == NULL)
        return -1;
    search->tokens = tokens;
    if (num_top == 0)
        return 0;
    struct top_logprob *top = realloc(search->top, num_top * sizeof(*search->top));
    if (top == NULL)
        return -1;
    search->top = top;
    return 0;
}

int beam_search_hypothesis(struct beam_search *search, int32_t rank, struct beam_hypothesis *out) {
    CHECK(search->over && rank >= 0 && rank < search->num_finished);
    const struct finished *found = &search->finished[rank];
    int32_t num_tokens;
    size_t num_top;
    beam_trellis_count(&search->trellis, found->node, &num_tokens, &num_top);
    if (num_top > INT32_MAX || reserve_hypothesis(search, num_tokens, num_top) != 0)
        return -1;
    beam_trellis_read(&search->trellis, found->node, search->tokens, search->top);
    *out = (struct beam_hypothesis){.tokens = search->tokens,
                                    .top = search->top,
                                    .num_tokens = num_tokens,
                                    .num_top = (int32_t)num_top,
                                    .score = found->score,
                                    .ended = found->ended};
    return 0;
}
