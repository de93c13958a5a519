#include "engine/record/record_step.h"

#include "config/base/numbers.h"
#include "models/files/content_hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- Writing --- */

/* Of the step's listed logprobs, those that the row has filled. */
static size_t listed_bytes(const struct sample_row *requested,
                           const struct sample_output *sampled) {
    bool is_ranked = requested->num_ranked > 0 && sampled->num_top == requested->num_ranked;
    return is_ranked ? (size_t)requested->num_ranked * sizeof(struct top_logprob)
                     : (size_t)requested->num_listed * sizeof(float);
}

static void hash_row(const struct step *step, int32_t row, struct byte_buffer *bits) {
    const struct sample_row *requested = &step->batch.sample_rows[row];
    const struct sample_output *sampled = &step->result.rows[row];
    if (requested->num_logprobs < 0)
        return;
    record_put_signed(bits, sampled->token);
    record_put_float(bits, sampled->logprob);
    record_put_signed(bits, sampled->rank);
    record_put_signed(bits, sampled->num_top);
    for (int32_t i = 0; i < min_int32(sampled->num_top, SAMPLE_MAX_LOGPROBS); i++) {
        record_put_signed(bits, sampled->top_tokens[i]);
        record_put_float(bits, sampled->top_logprobs[i]);
    }
    if (requested->num_listed > 0)
        byte_buffer_append(bits, step->result.listed_logprobs + requested->first_listed_logprob,
                           listed_bytes(requested, sampled));
}

/* 0: there is nothing to hash. */
static uint64_t hash_entry(const struct step *step, const struct planned_sequence *entry,
                           int32_t num_rows, int32_t hidden_size, struct byte_buffer *bits) {
    size_t width = (size_t)hidden_size;
    byte_buffer_clear(bits);
    for (int32_t i = 0; i < num_rows; i++)
        hash_row(step, entry->first_row + i, bits);
    if (entry->hidden_sum >= 0)
        byte_buffer_append(bits, step->result.hidden_sums + (size_t)entry->hidden_sum * width,
                           width * sizeof(float));
    return bits->length > 0 ? content_hash_short(bits->data, bits->length) : 0;
}

static void write_entry(const struct step *step, const struct planned_sequence *entry,
                        int32_t hidden_size, struct byte_buffer *bits, struct byte_buffer *out) {
    const int32_t *drafts = step_drafts(step, entry);
    int32_t num_rows = entry->num_scores + entry->num_samples + entry->num_forks;
    record_put_unsigned(out, entry->sequence->group->request->id);
    record_put_signed(out, entry->sequence->choice);
    record_put_signed(out, entry->begin);
    record_put_signed(out, entry->num_tokens);
    record_put_signed(out, entry->num_scores);
    record_put_signed(out, entry->num_drafts);
    for (int32_t i = 0; i < entry->num_drafts; i++)
        record_put_signed(out, drafts[i]);
    record_put_signed(out, num_rows - entry->num_scores);
    for (int32_t i = entry->num_scores; i < num_rows; i++)
        record_put_signed(out, step->result.rows[entry->first_row + i].token);
    record_put_unsigned(out, hash_entry(step, entry, num_rows, hidden_size, bits));
}

void record_step_write(const struct step *step, enum error_code failure, int32_t hidden_size,
                       struct byte_buffer *scratch, struct byte_buffer *out) {
    record_put_unsigned(out, (uint64_t)failure);
    if (failure != ERROR_NONE)
        return;
    record_put_signed(out, step->batch.swap_out.count);
    record_put_signed(out, step->batch.swap_in.count);
    record_put_signed(out, step->batch.copies.count);
    record_put_signed(out, step->batch.num_adapter_writes);
    record_put_signed(out, step->plan.num_entries);
    for (int32_t i = 0; i < step->plan.num_entries; i++)
        write_entry(step, &step->plan.entries[i], hidden_size, scratch, out);
    if (scratch->failed)
        out->failed = true;
}

/* --- Reading --- */

struct head {
    int32_t num_swap_out, num_swap_in, num_copies, num_adapter_writes, num_entries;
};

/* The tokens are left in the input. */
struct entry {
    uint64_t request;
    int32_t choice, begin, num_tokens, num_scores;
};

static int32_t get(struct record_input *in) {
    return record_get_int32(in, "a step", INT32_MIN, INT32_MAX);
}

static struct head read_head(struct record_input *in) {
    record_get_unsigned(in, "a step", UINT64_MAX);
    struct head head = {.num_swap_out = get(in)};
    head.num_swap_in = get(in);
    head.num_copies = get(in);
    head.num_adapter_writes = get(in);
    head.num_entries = record_get_count(in, "entries", INT32_MAX);
    return head;
}

static struct entry read_entry(struct record_input *in) {
    struct entry entry = {.request = record_get_unsigned(in, "a step", UINT64_MAX)};
    entry.choice = get(in);
    entry.begin = get(in);
    entry.num_tokens = get(in);
    entry.num_scores = get(in);
    return entry;
}

static int32_t read_count(struct record_input *in) {
    return record_get_count(in, "tokens", INT32_MAX);
}

enum error_code record_step_failure(struct text recorded) {
    struct record_input in = record_input_of(recorded);
    return (enum error_code)record_get_unsigned(&in, "a step", ERROR_RESTART);
}

void record_step_count(struct text recorded, uint64_t *num_entries, uint64_t *num_tokens) {
    struct record_input in = record_input_of(recorded);
    struct head head = read_head(&in);
    for (int32_t e = 0; e < head.num_entries && in.wrong == NULL; e++) {
        read_entry(&in);
        for (int32_t left = read_count(&in); left > 0; left--)
            get(&in);
        int32_t num_samples = read_count(&in);
        for (int32_t left = num_samples; left > 0; left--)
            get(&in);
        record_get_unsigned(&in, "a step", UINT64_MAX);
        *num_entries += 1;
        *num_tokens += (uint64_t)num_samples;
    }
}

/* --- Differences --- */

/* Two steps that are read side by side. */
struct comparison {
    struct record_input recorded, found;
    char *out;
    size_t capacity;
};

static bool explain_head(struct comparison *c, int32_t *out_num_entries) {
    struct head a = read_head(&c->recorded), b = read_head(&c->found);
    *out_num_entries = a.num_entries < b.num_entries ? a.num_entries : b.num_entries;
    if (a.num_adapter_writes != b.num_adapter_writes) {
        snprintf(c->out, c->capacity, "pieces of adapters written: recorded %d, found %d",
                 a.num_adapter_writes, b.num_adapter_writes);
        return true;
    }
    if (a.num_swap_out == b.num_swap_out && a.num_swap_in == b.num_swap_in &&
        a.num_copies == b.num_copies)
        return false;
    snprintf(c->out, c->capacity,
             "blocks swapped out, swapped in and copied: recorded %d, %d and %d, found %d, %d and "
             "%d",
             a.num_swap_out, a.num_swap_in, a.num_copies, b.num_swap_out, b.num_swap_in,
             b.num_copies);
    return true;
}

static bool explain_entry(struct comparison *c, struct entry *out) {
    struct entry a = read_entry(&c->recorded), b = read_entry(&c->found);
    *out = a;
    if (a.request == b.request && a.choice == b.choice && a.begin == b.begin &&
        a.num_tokens == b.num_tokens && a.num_scores == b.num_scores)
        return false;
    snprintf(c->out, c->capacity,
             "the plan: recorded request %" PRIu64 ", choice %d, %d tokens from position %d; found "
             "request %" PRIu64 ", choice %d, %d tokens from position %d",
             a.request, a.choice, a.num_tokens, a.begin, b.request, b.choice, b.num_tokens,
             b.begin);
    return true;
}

/* `position` is that of the first token. */
static bool explain_tokens(struct comparison *c, const struct entry *entry, const char *what,
                           int32_t position, int32_t *out_count) {
    int32_t num_recorded = read_count(&c->recorded), num_found = read_count(&c->found);
    *out_count = num_recorded;
    if (num_recorded != num_found) {
        snprintf(c->out, c->capacity,
                 "request %" PRIu64 ", choice %d, position %d: recorded %d tokens %s, found %d",
                 entry->request, entry->choice, position, num_recorded, what, num_found);
        return true;
    }
    for (int32_t i = 0; i < num_recorded; i++) {
        int32_t recorded = get(&c->recorded), found = get(&c->found);
        if (recorded == found)
            continue;
        snprintf(c->out, c->capacity,
                 "request %" PRIu64 ", choice %d, position %d: recorded token %d %s, found %d",
                 entry->request, entry->choice, position + i, recorded, what, found);
        return true;
    }
    return false;
}

static bool explain_bits(struct comparison *c, const struct entry *entry) {
    uint64_t recorded = record_get_unsigned(&c->recorded, "a step", UINT64_MAX);
    uint64_t found = record_get_unsigned(&c->found, "a step", UINT64_MAX);
    if (recorded == found)
        return false;
    snprintf(c->out, c->capacity,
             "request %" PRIu64
             ", choice %d, position %d: the same tokens, but bits of logprobs or "
             "hidden states differ",
             entry->request, entry->choice, entry->begin);
    return true;
}

/* The sequence's samples come after its tokens and before those of the drafts; forks are of the
 * same position as its own. */
static bool explain_next(struct comparison *c) {
    struct entry entry;
    int32_t num_drafts, num_samples;
    if (explain_entry(c, &entry))
        return true;
    int32_t end = entry.begin + entry.num_tokens;
    if (explain_tokens(c, &entry, "drafted", end, &num_drafts))
        return true;
    return explain_tokens(c, &entry, "sampled", end - num_drafts, &num_samples) ||
           explain_bits(c, &entry);
}

void record_step_explain(struct text recorded, struct text found, char *out, size_t capacity) {
    struct comparison c = {.recorded = record_input_of(recorded),
                           .found = record_input_of(found),
                           .out = out,
                           .capacity = capacity};
    int32_t num_entries = 0;
    if (record_step_failure(recorded) != record_step_failure(found)) {
        snprintf(out, capacity, "the executor %s, which it did not when it was recorded",
                 record_step_failure(found) != ERROR_NONE ? "failed" : "ran it");
        return;
    }
    if (explain_head(&c, &num_entries))
        return;
    for (int32_t i = 0; i < num_entries && c.recorded.wrong == NULL; i++)
        if (explain_next(&c))
            return;
    snprintf(out, capacity, "another number of sequences, or a step that cannot be read");
}
