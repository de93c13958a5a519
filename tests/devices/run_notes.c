#include "tests/devices/run_notes.h"

#include "engine/sequence/sequence_group.h"

#include <math.h>

static bool has_known_tokens(const struct request *request) {
    return ((const struct noted_request *)request->user)->has_known_tokens;
}

static void add_pairs(struct event_log *log, const char *name, const struct block_pairs *pairs) {
    for (int32_t i = 0; i < pairs->count; i++)
        event_log_add(log, " %s %d>%d", name, pairs->from[i], pairs->to[i]);
}

/* Where its tokens are taken from and where their keys and values go; which they are where that is
 * known. */
static void add_entry(struct event_log *log, const struct step *step, int32_t index) {
    const struct planned_sequence *entry = &step->plan.entries[index];
    const struct request *request = entry->sequence->request;
    const struct step_inputs *in = &step->batch.inputs;
    event_log_add(log, " [%llu.%d: %d+%d", (unsigned long long)request->id, entry->sequence->choice,
                  entry->begin, entry->num_tokens);
    if (entry->num_drafts > 0)
        event_log_add(log, " drafts %d", entry->num_drafts);
    for (int32_t t = in->query_start[index]; t < in->query_start[index + 1]; t++) {
        int32_t row = in->token_rows != NULL ? in->token_rows[t] : -1;
        bool is_known = has_known_tokens(request) || in->positions[t] < request->num_prompt_tokens;
        event_log_add(log, " %c%d@%d", row >= 0 ? 'r' : 't',
                      row >= 0   ? row
                      : is_known ? in->token_ids[t]
                                 : 0,
                      in->slot_mapping[t]);
    }
    event_log_add(log, " in");
    for (int32_t i = 0; i < step->plan.entries[index].sequence->table.num_blocks; i++)
        event_log_add(log, " %d", in->block_tables[index * in->max_blocks_per_seq + i]);
    event_log_add(log, "]");
}

void note_submitted(struct event_log *log, int64_t now, const struct step *step) {
    event_log_add(log, "%lld: submit, preempted %d to swap, %d to recompute", (long long)now,
                  step->plan.num_swapped_out, step->plan.num_dropped);
    add_pairs(log, "out", &step->batch.swap_out);
    add_pairs(log, "in", &step->batch.swap_in);
    add_pairs(log, "copy", &step->batch.copies);
    for (int32_t i = 0; i < step->plan.num_entries; i++)
        add_entry(log, step, i);
    event_log_end_line(log);
}

void note_collected(struct event_log *log, int64_t now, const struct step *step) {
    const struct batch *batch = &step->batch;
    event_log_add(log, "%lld: collect", (long long)now);
    for (int32_t i = 0; i < batch->num_sample_rows; i++) {
        const struct step_row *row = &step->rows[i];
        bool is_known = has_known_tokens(row->sequence->request) && !row->lacks_mask &&
                        row->sequence->status != SEQUENCE_FINISHED;
        event_log_add(log, " %llu.%d@%d=%d", (unsigned long long)row->sequence->request->id,
                      row->sequence->choice, row->position,
                      is_known ? step->result.rows[i].token : 0);
    }
    event_log_end_line(log);
}

static int32_t count_finite(const struct token_event *event) {
    int32_t count = 0;
    for (int32_t i = 0; i < event->num_tokens; i++)
        count += isfinite(event->tokens[i].logprob);
    for (int32_t i = 0; i < event->num_top; i++)
        count += isfinite(event->top[i].logprob);
    for (int32_t i = 0; i < event->num_dimensions; i++)
        count += isfinite(event->embedding[i]);
    return count;
}

void note_event(struct event_log *log, int64_t now, const struct noted_request *noted,
                const struct token_event *event) {
    event_log_add(log, "%lld: event %llu.%d kind %d, %d cached, %d numbers, tokens", (long long)now,
                  (unsigned long long)noted->request->id, event->choice, (int)event->kind,
                  event->num_cached_tokens, count_finite(event));
    for (int32_t i = 0; i < event->num_tokens; i++)
        event_log_add(log, " %d", noted->has_known_tokens ? event->tokens[i].token : 0);
    if (noted->has_known_tokens)
        event_log_add(log, " '%.*s'", (int)event->text_bytes, event->text);
    if (event->finish != FINISH_NONE)
        event_log_add(log, ", finish %d after %d, stop token %d", (int)event->finish,
                      event->num_generated, event->stop_token);
    event_log_end_line(log);
}
