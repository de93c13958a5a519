/* One list of tokens: a choice of a request, or what is in one slot of its beam search.
 *
 * There is no prefill or decode phase: a sequence has num_tokens tokens, of which the keys and
 * values of the first num_computed are in its blocks; the rest is pending. Once nothing is pending
 * a next token is sampled. A sequence preempted by recomputation only loses its blocks and starts
 * over at num_computed = 0.
 *
 * What steps in flight compute and sample is counted separately, so that the next step can be
 * planned before they are committed: num_tokens is then followed by tokens that only the device
 * knows.
 *
 * Engine thread only. */
#ifndef QUIRE_ENGINE_SEQUENCE_SEQUENCE_H
#define QUIRE_ENGINE_SEQUENCE_SEQUENCE_H

#include "config/serving_limits.h"
#include "engine/draft/draft_policy.h"
#include "engine/kv/block_table.h"
#include "engine/kv/token_view.h"
#include "engine/request/request.h"
#include "engine/sequence/detokenizer.h"
#include "engine/sequence/token_counts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grammar_state;
struct sequence_group;

enum sequence_status {
    SEQUENCE_WAITING,  /* holds no block: not begun, to fork from a sibling, or to be recomputed */
    SEQUENCE_RUNNING,  /* takes part in steps */
    SEQUENCE_SWAPPED,  /* its blocks are in the host pool */
    SEQUENCE_FINISHED, /* holds no block; lives on until its group ends */
};

/* What submitted steps that are not committed yet do for a sequence. */
struct sequence_in_flight {
    int32_t num_tokens; /* computed, drafts included */
    int32_t num_drafts; /* of these, not all of which may be accepted */
    int32_t
        num_samples; /* tokens sampled after the sequence's, apart from drafts: one of each step */
    int32_t sample_row; /* of the last step: where the token is sampled */
};

#define MAX_FORCED_TOKENS 32

/* Jump-forward decoding: if a grammar allows only one text, its tokens are appended without being
 * sampled, and one step computes them all. They depend only on the tokens before. If they cannot be
 * appended at once, because a step in flight samples the first or logprobs are requested, each is
 * sampled with a mask that allows only it. These are the next ones, in order; zeroed: none. */
struct forced_tokens {
    int32_t count;
    int32_t tokens[MAX_FORCED_TOKENS];
};

struct sequence {
    /* Set once, by sequence_group.c. */
    struct sequence_group *group;
    const struct request *request; /* the group's */
    int32_t choice;                /* its index in the group */
    int32_t max_tokens;            /* num_tokens never exceeds this */

    /* Written by the scheduler. The block table's memory comes from sequence_group.c. */
    enum sequence_status status;
    struct block_table table;
    int32_t num_computed;
    int32_t max_computed; /* largest num_computed so far: everything below was computed or found
                             before */
    int32_t num_scheduled_tokens; /* of the step being planned */
    struct sequence_in_flight in_flight;
    bool waits_for_prefix; /* in that step another sequence computes its next block */
    int32_t num_missed; /* tokens that the draft model had not computed, as of the last such step */
    bool is_of_next_step; /* decodes in the step after that; false once that is planned */

    /* Written by sequence.c: the tokens and what follows from them. */
    int32_t num_tokens; /* prompt and generated */
    int32_t *output;    /* generated tokens */
    size_t output_capacity;
    struct token_counts counts;    /* empty unless there is a penalty */
    bool has_counted_prompt;       /* the prompt's tokens are in them */
    float mirostat_mu;             /* for the next token: kernels/sampling.h */
    struct grammar_state *grammar; /* made by batch/sampling_inputs.c before the first token is
                                      sampled; NULL without a grammar */
    struct forced_tokens forced;   /* by it: the next ones */
    float *hidden_sum;             /* with POOLING_MEAN and num_computed > 0 */

    /* Written by core/speculation.c: tokens that may follow, found in the history. Allocated once
     * there are some. */
    int32_t *drafts;
    int32_t num_drafts;
    struct draft_acceptance acceptance;
    struct draft_acceptance model_acceptance; /* of what the draft model proposes; its rate is -1
                                                 before it is asked first */
    int32_t
        num_wanted_drafts;   /* to be verified in the next step: the first of the drafts, or ... */
    bool wants_model_drafts; /* as many of the draft model, which proposes them in that step */
    int32_t most_missed;     /* tokens that the draft model may have to compute before that */

    /* Written by core/step_output.c: what is streamed. */
    struct detokenizer detokenizer;
    struct thinking_state thinking;
    bool end_pushed; /* the last event is in the stream */

    /* Written by the core: step_output.c for an end that a token brings, engine_core.c and
     * engine_core_step.c for one without. */
    enum finish_reason finish;

    /* Written by core/engine_core_commit.c. */
    bool is_idle; /* a slot of a beam search in which no beam runs */

    /* Written by core/engine_core_restart.c. */
    int32_t suspect_end; /* of a suspect: tokens that it had, or was computing, when the ranks were
                            lost */

    /* Written by core/core_stats.c. */
    int64_t first_scheduled_ns; /* 0: never; a fork takes its leader's */
    int64_t first_token_ns;
    int64_t last_token_ns;
};

/* Returns how many tokens a sequence of the request can have at most. */
int32_t sequence_token_limit(const struct request *request, int32_t max_model_len);
/* Returns the maximum number of tokens whose keys and values it holds at once: the token sampled
 * last is never fed back. */
int32_t sequence_kv_limit(const struct request *request, int32_t max_model_len);

const struct sampling_params *sequence_params(const struct sequence *sequence);
int32_t sequence_num_prompt(const struct sequence *sequence);
int32_t sequence_token(const struct sequence *sequence, int32_t position);
struct token_view sequence_tokens(const struct sequence *sequence);
int32_t sequence_num_generated(const struct sequence *sequence);
/* Returns how many tokens it has, with those that steps in flight sample. */
int32_t sequence_num_tokens_ahead(const struct sequence *sequence);
/* Returns how many are computed, with those that steps in flight compute. */
int32_t sequence_num_computed_ahead(const struct sequence *sequence);
/* Returns the number of tokens left for steps that are not submitted yet. The last token that a
 * sequence can have is never computed, so it is not counted. */
int32_t sequence_num_pending(const struct sequence *sequence);
/* Returns how many tokens at the start of both are equal. */
int32_t sequence_common_tokens(const struct sequence *a, const struct sequence *b);
/* Returns whether the request's grammar leaves nothing to add to the output. */
bool sequence_is_complete(const struct sequence *sequence);

/* Returns whether a penalty needs its tokens counted. */
bool sequence_has_penalty(const struct sequence *sequence);
/* Returns whether the first forced token should be appended without being sampled, now that no step
 * in flight samples it. */
bool sequence_can_jump(const struct sequence *sequence);
/* Returns whether it must be left out of further steps until the one in flight is committed, and
 * then jumps. */
bool sequence_waits_to_jump(const struct sequence *sequence);
/* Returns whether the candidates for its next token depend on the surprise of those before
 * (Mirostat). */
bool sequence_has_mirostat(const struct sequence *sequence);
/* Adds the prompt's tokens to the counts, if a penalty needs them, before the first token is
 * sampled: so a request that only waits in the queue has no counts. Returns -1 when memory is
 * short; nothing can then be appended. */
int sequence_count_prompt(struct sequence *sequence);
/* Appends a generated token. Returns -1 when memory is short, or was when its row was built, or
 * when the request's grammar does not accept the token. */
int sequence_append(struct sequence *sequence, int32_t token);
/* Replaces the generated tokens by those of another sequence of the group. For beams only, which
 * have neither counts nor grammar. Returns -1 when memory is short. */
int sequence_copy_output(struct sequence *to, const struct sequence *from);
/* Keeps the sum of the computed tokens' hidden states for the step that continues it. Returns -1
 * when memory is short. */
int sequence_keep_hidden_sum(struct sequence *sequence, const float *sum, int32_t hidden_size);
/* Returns the maximum memory of a running sequence, itself included. */
size_t sequence_max_bytes(const struct serving_limits *limits);
/* Frees what an ended sequence no longer needs: all its memory except that of the block table. */
void sequence_release(struct sequence *sequence);

/* Returns whether the request's grammar forces tokens. */
bool forced_tokens_apply(const struct sampling_params *params);
/* Notes that the grammar has accepted the token, which is the first of them if there are any. Then
 * finds those that follow the last of them, or that token. */
void forced_tokens_note(struct forced_tokens *forced, struct grammar_state *grammar, int32_t token);

#endif
