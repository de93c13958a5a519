#include "tests/sim/fake_executor.h"

#include "config/base/check.h"
#include "tests/sim/fake_forward.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Only the next step can name these rows: rows of this one are read before. */
static void keep_sampled(struct fake_executor *fake, const struct batch *batch,
                         const struct step_result *result) {
    fake->num_sampled = batch->num_sample_rows;
    CHECK(fake->num_sampled <= 2 * fake->max_num_batched_tokens);
    for (int32_t i = 0; i < fake->num_sampled; i++)
        fake->sampled[i] =
            batch->sample_rows[i].target == SAMPLE_NO_TARGET ? result->rows[i].token : -1;
}

static int run(struct fake_executor *fake, const struct batch *batch, struct step_result *result,
               struct error *err) {
    fake->num_calls++;
    fake->running = batch;
    if (fake->loses_ranks != NULL && !fake->is_lost && fake->loses_ranks(fake->context, batch)) {
        fake->is_lost = true;
        fake->num_losses++;
        fake->num_losses_ahead += fake->submitted[fake->num_submitted - 1].batch != batch;
    }
    if (fake->is_lost)
        return error_set(err, ERROR_RESTART, "scripted loss");
    if (fake->delay_us > 0)
        usleep((useconds_t)fake->delay_us);
    if (fake->fail_at_call > 0 && fake->num_calls >= fake->fail_at_call)
        return error_set(err, ERROR_DEVICE, "scripted failure");
    if (fake_forward_run(fake, batch, result) != 0)
        return error_set(err, ERROR_DEVICE, "%s", fake->violation);
    keep_sampled(fake, batch, result);
    return 0;
}

/* --- Steps in flight --- */

static void add_ints(uint64_t *hash, const int32_t *items, int64_t count) {
    *hash = fake_model_hash(*hash, (int32_t)count);
    for (int64_t i = 0; i < count && items != NULL; i++)
        *hash = fake_model_hash(*hash, items[i]);
}

static void add_pairs(uint64_t *hash, const struct block_pairs *pairs) {
    add_ints(hash, pairs->from, pairs->count);
    add_ints(hash, pairs->to, pairs->count);
}

/* Of all that a step may be computed from before it is supplied. */
static uint64_t fingerprint(const struct batch *batch) {
    const struct step_inputs *in = &batch->inputs;
    uint64_t hash = 0;
    add_ints(&hash, in->token_ids, in->num_tokens);
    add_ints(&hash, in->token_rows, in->num_tokens);
    add_ints(&hash, in->positions, in->num_tokens);
    add_ints(&hash, in->slot_mapping, (int64_t)in->num_groups * in->num_tokens);
    add_ints(&hash, in->query_start, in->num_seqs > 0 ? in->num_seqs + 1 : 0);
    add_ints(&hash, in->context_lens, in->num_seqs);
    add_ints(&hash, in->block_tables,
             (int64_t)in->num_groups * in->num_seqs * in->max_blocks_per_seq);
    add_pairs(&hash, &batch->swap_out);
    add_pairs(&hash, &batch->swap_in);
    add_pairs(&hash, &batch->copies);
    add_ints(&hash, batch->logit_rows, batch->num_sample_rows);
    for (int32_t i = 0; i < batch->num_draft_requests; i++)
        add_ints(&hash, &batch->draft_requests[i].seq,
                 sizeof(struct draft_request) / sizeof(int32_t));
    add_ints(&hash, in->adapter_slots, in->adapter_slots != NULL ? in->num_seqs : 0);
    for (int32_t i = 0; i < batch->num_adapter_writes; i++) {
        const struct adapter_write *write = &batch->adapter_writes[i];
        add_ints(&hash, &write->slot, 1);
        add_ints(&hash, &write->rows.first_row, 2);
        add_ints(&hash, (const int32_t *)(batch->adapter_data + write->first_byte), 4);
    }
    return hash;
}

static void run_submitted(struct fake_executor *fake, struct fake_step *step) {
    if (step->has_run)
        return;
    if (fingerprint(step->batch) != step->fingerprint)
        fake_forward_violate(fake, "a batch changed in flight", step->batch->inputs.num_tokens, 0);
    step->has_run = true;
    step->status = run(fake, step->batch, step->result, &step->error);
}

/* Runs the steps that are to run early and have all their inputs, and those before them. */
static void run_early(struct fake_executor *fake) {
    for (int32_t i = fake->num_submitted - 1; i >= 0; i--) {
        struct fake_step *step = &fake->submitted[i];
        if (!step->is_early || (step->batch->has_late_inputs && !step->is_supplied))
            continue;
        for (int32_t k = 0; k <= i; k++)
            run_submitted(fake, &fake->submitted[k]);
        return;
    }
}

/* Nothing that was not waited for may use a slot that is written. */
static void check_writes(struct fake_executor *fake, const struct batch *batch) {
    for (int32_t i = 0; i < batch->num_adapter_writes; i++)
        for (int32_t k = 0; k < fake->num_submitted; k++) {
            const struct step_inputs *in = &fake->submitted[k].batch->inputs;
            for (int32_t seq = 0; in->adapter_slots != NULL && seq < in->num_seqs; seq++)
                if (in->adapter_slots[seq] == batch->adapter_writes[i].slot)
                    fake_forward_violate(fake, "a slot in use is written", k, seq);
        }
}

static bool draw_timing(struct fake_executor *fake) {
    return fake->timing == FAKE_MIXED ? random_once_in(&fake->random, 2)
                                      : fake->timing == FAKE_EARLY;
}

static void submit(struct executor *executor, const struct batch *batch,
                   struct step_result *result) {
    struct fake_executor *fake = (struct fake_executor *)executor;
    CHECK(fake->num_submitted < EXECUTOR_MAX_STEPS);
    CHECK(!fake->is_lost || fake->num_submitted > 0);
    for (int32_t i = 0; i < fake->num_submitted; i++)
        CHECK(fake->submitted[i].is_supplied == fake->submitted[i].batch->has_late_inputs);
    check_writes(fake, batch);
    fake->submitted[fake->num_submitted++] = (struct fake_step){.batch = batch,
                                                                .result = result,
                                                                .fingerprint = fingerprint(batch),
                                                                .is_early = draw_timing(fake)};
    run_early(fake);
}

static void supply(struct executor *executor) {
    struct fake_executor *fake = (struct fake_executor *)executor;
    CHECK(fake->num_submitted > 0);
    struct fake_step *last = &fake->submitted[fake->num_submitted - 1];
    CHECK(last->batch->has_late_inputs && !last->is_supplied);
    last->is_supplied = true;
    fake->num_supplied++;
    run_early(fake);
}

static int wait(struct executor *executor, struct error *err) {
    struct fake_executor *fake = (struct fake_executor *)executor;
    CHECK(fake->num_submitted > 0);
    struct fake_step step = fake->submitted[0];
    CHECK(step.is_supplied == step.batch->has_late_inputs || fake->is_lost);
    run_submitted(fake, &step);
    fake->submitted[0] = fake->submitted[--fake->num_submitted];
    if (step.status != 0)
        *err = step.error;
    return step.status;
}

static int check(struct executor *executor, struct error *err) {
    struct fake_executor *fake = (struct fake_executor *)executor;
    CHECK(fake->num_submitted == 0 && !fake->is_lost);
    if (fake->loses_ranks == NULL || !fake->loses_ranks(fake->context, NULL))
        return 0;
    fake->is_lost = true;
    fake->num_losses++;
    return error_set(err, ERROR_RESTART, "scripted loss");
}

static void clear_slots(struct shadow_slot *slots, size_t count) {
    for (size_t i = 0; i < count; i++)
        slots[i] = (struct shadow_slot){.position = -1};
}

static int restart(struct executor *executor, struct error *err) {
    struct fake_executor *fake = (struct fake_executor *)executor;
    CHECK(fake->num_submitted == 0 && fake->is_lost);
    clear_slots(fake->slots, (size_t)fake->num_blocks * (size_t)fake->block_size);
    clear_slots(fake->host, (size_t)fake->num_host_blocks * (size_t)fake->block_size);
    if (fake->drafted != NULL) {
        clear_slots(fake->drafted, (size_t)fake->num_blocks * (size_t)fake->block_size);
        clear_slots(fake->drafted_host, (size_t)fake->num_host_blocks * (size_t)fake->block_size);
    }
    fake_executor_drop_adapters(fake);
    fake->num_sampled = 0;
    fake->is_lost = false;
    return 0;
}

static void destroy(struct executor *executor) {
    fake_executor_finish((struct fake_executor *)executor);
}

static void *alloc_zeroed(size_t count, size_t item_bytes) {
    void *memory = calloc(count + 1, item_bytes);
    CHECK(memory != NULL);
    return memory;
}

static struct shadow_slot *alloc_slots(int32_t num_blocks, int32_t block_size) {
    size_t count = (size_t)num_blocks * (size_t)block_size;
    struct shadow_slot *slots = alloc_zeroed(count, sizeof(*slots));
    for (size_t i = 0; i < count; i++)
        slots[i].position = -1;
    return slots;
}

static void alloc_scratch(struct fake_executor *fake) {
    int32_t most =
        fake->num_blocks > fake->num_host_blocks ? fake->num_blocks : fake->num_host_blocks;
    free(fake->last_from);
    free(fake->last_to);
    fake->last_from = alloc_zeroed((size_t)most, sizeof(*fake->last_from));
    fake->last_to = alloc_zeroed((size_t)most, sizeof(*fake->last_to));
}

void fake_executor_init(struct fake_executor *fake, int32_t num_blocks, int32_t block_size,
                        int32_t max_num_batched_tokens) {
    static const struct executor_ops ops = {
        .submit = submit,
        .supply = supply,
        .wait = wait,
        .destroy = destroy,
        .step_memory = executor_takes_any_memory,
        .check = check,
        .restart = restart,
        .sleep = executor_cannot_sleep,
        .wake = executor_cannot_start_again,
        .rank_stats = executor_has_no_stats,
        .host_pools = executor_shares_no_host_pools,
    };
    *fake = (struct fake_executor){
        .base = {.ops = &ops, .can_lose_ranks = true},
        .block_size = block_size,
        .num_blocks = num_blocks,
        .max_num_batched_tokens = max_num_batched_tokens,
        .slots = alloc_slots(num_blocks, block_size),
        .writers = alloc_zeroed((size_t)num_blocks, sizeof(*fake->writers)),
        /* no more sequences fork in a step than it has tokens at most */
        .sampled = alloc_zeroed(2 * (size_t)max_num_batched_tokens, sizeof(*fake->sampled)),
    };
    alloc_scratch(fake);
}

void fake_executor_add_host(struct fake_executor *fake, int32_t num_host_blocks) {
    CHECK(fake->host == NULL);
    fake->host = alloc_slots(num_host_blocks, fake->block_size);
    fake->num_host_blocks = num_host_blocks;
    alloc_scratch(fake);
}

void fake_executor_add_draft_model(struct fake_executor *fake, bool has_mtp) {
    fake->has_mtp = has_mtp;
    fake->drafted = alloc_slots(fake->num_blocks, fake->block_size);
    fake->drafted_host = alloc_slots(fake->num_host_blocks, fake->block_size);
    fake->token_ids = alloc_zeroed((size_t)fake->max_num_batched_tokens, sizeof(*fake->token_ids));
}

void fake_executor_drop_adapters(struct fake_executor *fake) {
    memset(fake->adapters, 0, sizeof(fake->adapters));
}

void fake_executor_finish(struct fake_executor *fake) {
    free(fake->slots);
    free(fake->host);
    free(fake->drafted);
    free(fake->drafted_host);
    free(fake->token_ids);
    free(fake->writers);
    free(fake->last_from);
    free(fake->last_to);
    free(fake->sampled);
    fake->slots = NULL;
    fake->host = NULL;
    fake->drafted = NULL;
    fake->drafted_host = NULL;
    fake->token_ids = NULL;
    fake->writers = NULL;
    fake->last_from = NULL;
    fake->last_to = NULL;
    fake->sampled = NULL;
}
