/* Seeded simulation of everything between the inbox and the token streams: engine_core on the fake
 * executor, with a counter for a clock. Each seed draws a server (pools from one block up, slots,
 * budget, block size, window, cache), requests of all kinds, when they arrive, are cancelled and
 * are read, and sometimes a device that fails. After every step the invariants must hold; every
 * stream must be what the oracle says: with one step in flight, with two, with drafts, right
 * or wrong, and when the executor loses its ranks now and then, or whenever it computes a certain
 * request, which alone may then be given up. And all of it must occur: a run in which nothing was
 * swapped, copied, shared or found again shows nothing.
 *
 *   test_sim [--seeds N] [--first-seed S]
 *
 * A failure prints the seed and the step; the same seed replays it. */
#include "tests/sim/count_table.h"
#include "tests/sim/invariants.h"
#include "tests/sim/simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENOUGH_SEEDS 500 /* for everything to occur */

struct totals {
    uint64_t steps, ahead, token_rows, supplied, dead_rows, deferred, collected_first, swaps,
        recomputes, stalls, aborted, failed, finished;
    uint64_t copies, swapped_in, hits, shared, dropped, beams, refused;
    uint64_t ngrams_accepted, missed;
    uint64_t unmasked, mask_jobs, jumped;
    uint64_t late, late_in_midst, late_beams, late_unread, queue_timeouts;
    uint64_t losses, losses_ahead, alone, crashed;
    struct draft_counts drafts;
    uint64_t loads, written, written_idle, adapted, mixed, unloads_loading, unloads_used, rewritten,
        adapter_hits;
    uint64_t kept, promoted, stored, read, failed_reads;
    struct handover_stats handed_over, taken_over;
};

static bool awaits_blocks(const struct sequence_group *group) {
    for (int32_t i = 0; i < group->num_sequences; i++)
        if (group->sequences[i].table.num_awaited > 0)
            return true;
    return false;
}

/* The first group in order that can run must move on, or end, unless one that waits to be admitted,
 * for a mask, or for blocks of the store or in it, is before it: liveness. Its request's id, or 0.
 */
static uint64_t find_front(const struct simulation *sim) {
    const struct sequence_group *g = sim->core.scheduler.running.first;
    while (g != NULL && g->stalled)
        g = g->list_next;
    if (g != NULL && (sequence_group_is_held(g) || awaits_blocks(g) || g->handover.is_awaited))
        return 0;
    const struct sequence_group *waiting = NULL;
    while ((waiting = share_queue_next(&sim->core.scheduler.waiting, waiting)) != NULL)
        if (g != NULL && !waiting->stalled && sequence_group_before(waiting, g))
            return 0;
    return g != NULL ? g->request->id : 0;
}

static bool has_moved(const struct simulation *sim, uint64_t id) {
    bool is_live = false, ran = false;
    for (const struct sequence_group *g = sim->core.first_group; g != NULL; g = g->next)
        is_live |= g->request->id == id;
    for (int32_t i = 0; i < sim->num_ran; i++)
        ran |= sim->ran[i] == id;
    return ran || !is_live;
}

/* Waits for the group in front to move on. */
struct patience {
    uint64_t front;
    int32_t num_calls; /* in which it did not */
};

/* With steps in flight its turn may have to wait for them: the tokens that it depends on, then
 * blocks that can be taken from nobody in flight, for which the call after that plans nothing. */
static void check_progress(struct simulation *sim, struct patience *patience, uint64_t front) {
    /* Another one runs alone, or adapters are written first. */
    bool is_held = sim->core.is_lost || sim->core.has_suspects ||
                   adapter_slots_must_write(&sim->core.adapters);
    if (front != patience->front || front == 0 || sim->core.num_stalled > 0 || is_held)
        *patience = (struct patience){.front = front};
    if (front == 0 || sim->core.num_stalled > 0 || is_held || sim->front_was_passed ||
        has_moved(sim, front))
        patience->num_calls = 0;
    else
        patience->num_calls++;
    EXPECT(sim, patience->num_calls <= (sim->core.num_steps > 1 ? 3 : 0), (int64_t)front);
}

static void step(struct simulation *sim, struct totals *totals) {
    const struct engine_core *core = &sim->core;
    sim->num_ran = 0;
    sim->num_collected_first += core->num_in_flight > 0 && core->scheduler.must_collect;
    sim->num_rewrites += adapter_slots_must_write(&core->adapters);
    bool ran = engine_core_step(&sim->core);
    EXPECT(sim,
           ran || engine_core_is_idle(core) || core->num_stalled > 0 ||
               core->mask_jobs.num_running > 0 || core->num_storing > 0 ||
               block_manager_has_writes(&core->scheduler.blocks) ||
               core->scheduler.blocks.tiers.num_reads > 0,
           0);
    EXPECT(sim, core->num_in_flight < core->num_steps, core->num_in_flight);
    EXPECT(sim, core->num_in_flight == 0 || ran, core->num_in_flight);
    totals->steps += ran;
    totals->alone += ran && core->scheduler.alone != NULL;
    totals->stalls += core->num_stalled > 0;
}

static void run_steps(struct simulation *sim, struct totals *totals) {
    int64_t limit = simulation_step_limit(sim);
    struct patience patience = {0};
    for (; !sim->broken && !simulation_is_over(sim); sim->now++) {
        simulation_submit(sim);
        if (sim->now == sim->shutdown_at)
            engine_core_abort(&sim->core, FINISH_ABORT);
        uint64_t front = find_front(sim);
        sim->front = front;
        sim->front_was_passed = false;
        step(sim, totals);
        invariants_check_state(sim);
        check_progress(sim, &patience, front);
        simulation_read_streams(sim);
        EXPECT(sim, sim->now < limit, limit);
    }
}

/* Counts what the choices of all requests were read to end with. */
struct outcome {
    uint64_t finished[FINISH_ERROR + 1];
    uint64_t tokens, choices, beams;
    uint64_t late_in_midst, late_beams, late_unread; /* of those that ended by their deadline */
};

static void read_outcome(struct simulation *sim, struct simulated_request *request,
                         struct outcome *out) {
    const struct sampling_params *params = &request->checker.request->params;
    simulation_read(sim, request);
    EXPECT(sim, stream_checker_is_done(&request->checker), request->arrival);
    EXPECT(sim, atomic_load(&request->checker.request->references) == 1, request->arrival);
    for (int32_t c = 0; c < params->num_choices && request->checker.request->id > 0; c++) {
        const struct choice_progress *choice = &request->checker.choices[c];
        out->finished[choice->finish]++;
        out->tokens += (uint64_t)choice->num_tokens;
        out->choices++;
        out->beams += params->beam_width > 1 && choice->num_tokens > 1;
        bool is_late = choice->finish == FINISH_DEADLINE;
        out->late_in_midst += is_late && choice->num_tokens > 0;
        out->late_beams += is_late && params->beam_width > 1;
        out->late_unread += is_late && request->reader == READER_ABSENT;
    }
}

/* Each token of every prompt was computed or found. A choice that starts late may compute
 * some of it once more. */
static void check_prompts(struct simulation *sim) {
    uint64_t tokens = 0;
    bool late = false;
    for (int32_t i = 0; i < sim->num_requests; i++) {
        const struct request *request = sim->requests[i].checker.request;
        tokens += request->id > 0 ? (uint64_t)request->num_prompt_tokens : 0;
        late |= request->params.num_choices > 1 || request->params.beam_width > 1;
    }
    const struct engine_stats *stats = &sim->core.stats;
    uint64_t seen = stats->prompt_tokens + stats->prefix_hits;
    EXPECT(sim, late ? seen >= tokens : seen == tokens, (int64_t)seen - (int64_t)tokens);
}

/* Each choice ended exactly once, and the counters agree with what was read; the engine has let go
 * of every request. */
static void check_outcome(struct simulation *sim, struct totals *totals) {
    struct outcome outcome = {.tokens = 0};
    for (int32_t i = 0; i < sim->num_requests && !sim->broken; i++) {
        read_outcome(sim, &sim->requests[i], &outcome);
        totals->refused += sim->requests[i].checker.request->id == 0;
    }
    const struct engine_stats *stats = &sim->core.stats;
    for (int reason = FINISH_NONE; reason <= FINISH_ERROR; reason++)
        EXPECT(sim, outcome.finished[reason] == stats->finished[reason], reason);
    EXPECT(sim, outcome.tokens == stats->generation_tokens, (int64_t)outcome.tokens);
    EXPECT(sim, outcome.finished[FINISH_ERROR] == 0 || sim->executor.fail_at_call > 0, 0);
    EXPECT(sim, stats->time_to_first_token.total <= outcome.choices, (int64_t)outcome.choices);
    const struct queue_counts *queued = &sim->queue.all;
    EXPECT(sim, queued->requests == 0 && queued->tokens == 0 && queued->choices == 0,
           queued->requests);
    uint64_t num_cut = 0;
    for (int reason = FINISH_NONE; reason <= FINISH_ERROR; reason++)
        num_cut += stream_checker_is_cut(reason) ? outcome.finished[reason] : 0;
    if (num_cut == 0)
        check_prompts(sim);
    totals->late += outcome.finished[FINISH_DEADLINE];
    totals->late_in_midst += outcome.late_in_midst;
    totals->late_beams += outcome.late_beams;
    totals->late_unread += outcome.late_unread;
    totals->queue_timeouts += outcome.finished[FINISH_QUEUE_TIMEOUT];
    totals->aborted += outcome.finished[FINISH_ABORT];
    totals->crashed += outcome.finished[FINISH_CRASHED];
    totals->failed += outcome.finished[FINISH_ERROR];
    totals->finished += outcome.finished[FINISH_STOP] + outcome.finished[FINISH_LENGTH];
    totals->beams += outcome.beams;
}

/* The engine counts what the executor was given to do. */
static void check_moves(struct simulation *sim, struct totals *totals) {
    const struct engine_stats *stats = &sim->core.stats;
    const struct fake_executor *executor = &sim->executor;
    EXPECT(sim,
           sim->core.failed || sim->core.is_lost || stats->rank_restarts == executor->num_losses,
           (int64_t)executor->num_losses);
    if (!sim->core.failed && executor->num_losses == 0) {
        EXPECT(sim, stats->copied_blocks == executor->num_copied, (int64_t)stats->copied_blocks);
        EXPECT(sim, stats->swapped_out_blocks == executor->num_swapped_out,
               (int64_t)stats->swapped_out_blocks);
        EXPECT(sim, stats->swapped_in_blocks == executor->num_swapped_in,
               (int64_t)stats->swapped_in_blocks);
    }
    EXPECT(sim, stats->prefix_hits <= stats->prefix_queries, (int64_t)stats->prefix_hits);
    totals->copies += executor->num_copied;
    totals->swapped_in += executor->num_swapped_in;
    totals->swaps += stats->preemptions_swap;
    totals->recomputes += stats->preemptions_recompute;
    totals->hits += stats->prefix_hits;
    totals->shared += sim->num_shared;
    totals->dropped += sim->num_dropped;
}

/* The engine counts what was drafted and accepted, in commits. */
static void check_drafts(struct simulation *sim, struct totals *totals) {
    const struct engine_stats *stats = &sim->core.stats;
    const struct draft_counts *drafts = &sim->drafts;
    EXPECT(sim, stats->num_draft_tokens == drafts->tokens, (int64_t)drafts->tokens);
    EXPECT(sim, stats->num_accepted_tokens == drafts->accepted, (int64_t)drafts->accepted);
    EXPECT(sim, sim->drafter != NULL || drafts->tokens == 0, (int64_t)drafts->tokens);
    struct draft_counts *sum = &totals->drafts;
    sum->tokens += drafts->tokens;
    sum->accepted += drafts->accepted;
    totals->ngrams_accepted += sim->variant.drafts == DRAFTS_NGRAM ? drafts->accepted : 0;
    sum->rejected += drafts->rejected;
    sum->ended += drafts->ended;
    sum->masked += drafts->masked;
    sum->penalised += drafts->penalised;
    sum->after_preemption += drafts->after_preemption;
    sum->in_windows += drafts->in_windows;
    sum->of_model += drafts->of_model;
    sum->of_model_accepted += drafts->of_model_accepted;
    totals->missed += sim->executor.num_missed;
}

static void add_handovers(struct handover_stats *to, const struct handover_stats *from) {
    to->num_requests += from->num_requests;
    to->num_tokens += from->num_tokens;
    to->num_missing_tokens += from->num_missing_tokens;
}

static void add_flights(const struct simulation *sim, struct totals *totals) {
    totals->ahead += sim->num_ahead;
    totals->token_rows += sim->executor.num_token_rows;
    totals->supplied += sim->executor.num_supplied;
    totals->dead_rows += sim->num_dead_rows;
    totals->deferred += sim->num_deferred;
    totals->collected_first += sim->num_collected_first;
    totals->losses += sim->executor.num_losses;
    totals->losses_ahead += sim->executor.num_losses_ahead;
    totals->unmasked += sim->num_unmasked;
    totals->mask_jobs += sim->mask_workers.num_begun;
    totals->jumped += sim->core.stats.jump_forward_tokens;
    totals->loads += sim->num_loads;
    totals->written += sim->executor.num_written - sim->executor.num_written_idle;
    totals->written_idle += sim->executor.num_written_idle;
    totals->adapted += sim->executor.num_adapted;
    totals->mixed += sim->executor.num_mixed;
    totals->unloads_loading += sim->num_unloads_loading;
    totals->unloads_used += sim->num_unloads_used;
    totals->rewritten += sim->num_rewrites;
    totals->adapter_hits += sim->num_adapter_hits;
    const struct block_tiers *tiers = &sim->core.scheduler.blocks.tiers;
    totals->kept += tiers->num_kept;
    totals->promoted += tiers->num_promoted;
    totals->stored += sim->store.num_written;
    totals->read += tiers->num_read;
    totals->failed_reads += tiers->num_failed_reads;
    add_handovers(&totals->handed_over, &sim->core.stats.handed_over);
    add_handovers(&totals->taken_over, &sim->core.stats.taken_over);
}

/* --- Runs that must be alike --- */

#define MAX_ENDS (SIMULATION_MAX_REQUESTS * SIMULATION_MAX_CHOICES)

/* What the choices of all requests ended with in the first run of a seed. */
struct ends {
    struct choice_progress choices[MAX_ENDS];
    int32_t count;
};

static void keep_ends(const struct simulation *sim, struct ends *ends) {
    ends->count = 0;
    for (int32_t i = 0; i < sim->num_requests; i++) {
        const struct stream_checker *checker = &sim->requests[i].checker;
        for (int32_t c = 0; c < checker->request->params.num_choices; c++)
            ends->choices[ends->count++] = checker->choices[c];
    }
}

/* What was cut off is a prefix of what the oracle says in either run; more is not known of it. */
static void check_end(struct simulation *sim, const struct choice_progress *a,
                      const struct choice_progress *b, int64_t id) {
    if (stream_checker_is_cut(a->finish) || stream_checker_is_cut(b->finish))
        return;
    EXPECT(sim, a->finish == b->finish, id);
    EXPECT(sim, a->num_tokens == b->num_tokens && a->tokens_hash == b->tokens_hash, id);
    EXPECT(sim, a->text_bytes == b->text_bytes && a->text_hash == b->text_hash, id);
}

/* Whoever was not disturbed ended by itself. */
static void check_ends(struct simulation *sim, const struct ends *first) {
    int32_t count = 0;
    for (int32_t i = 0; i < sim->num_requests; i++) {
        const struct simulated_request *r = &sim->requests[i];
        const struct request *request = r->checker.request;
        bool is_poisoned = r == sim->poisoned;
        bool is_disturbed = is_poisoned || sim->executor.fail_at_call > 0 ||
                            sim->shutdown_at >= 0 || r->cancel_at >= 0 ||
                            r->reader != READER_PROMPT || request->deadline_ns != 0 ||
                            request->queue_deadline_ns != 0;
        for (int32_t c = 0; c < request->params.num_choices; c++) {
            const struct choice_progress *choice = &r->checker.choices[c];
            EXPECT(sim, is_disturbed || !stream_checker_is_cut(choice->finish), i);
            EXPECT(sim, is_poisoned || choice->finish != FINISH_CRASHED, i);
            check_end(sim, &first->choices[count++], choice, i);
        }
    }
    EXPECT(sim, count == first->count, count);
}

/* A step of a pipeline needs nothing of what another one in flight samples. */
static void check_stages(struct simulation *sim) {
    if (sim->variant.num_stages <= 1)
        return;
    EXPECT(sim, sim->executor.num_token_rows == 0, (int64_t)sim->executor.num_token_rows);
    EXPECT(sim, sim->executor.num_supplied == 0, (int64_t)sim->executor.num_supplied);
}

/* --- Seeds --- */

static void run_variant(struct simulation *sim, struct ends *ends, struct totals *totals) {
    run_steps(sim, totals);
    if (!sim->broken) {
        check_outcome(sim, totals);
        check_moves(sim, totals);
        check_drafts(sim, totals);
        check_stages(sim);
    }
    if (ends->count == 0)
        keep_ends(sim, ends);
    if (!sim->broken)
        check_ends(sim, ends);
    add_flights(sim, totals);
}

/* As after many steps, in which a draft model has paid: else short runs would hardly use it. */
static void know_costs(struct speculation *speculation) {
    for (int i = 0; i < SPECULATION_MAGNITUDES; i++) {
        struct model_cost *cost = &speculation->model_costs[i];
        *cost = (struct model_cost){.plain_ns = 1,
                                    .share = 0.1f,
                                    .input_share = 0.001f,
                                    .is_measured = true,
                                    .num_plain = 100};
    }
    speculation->num_known = 100;
}

static bool run_seed(uint64_t seed, struct totals *totals) {
    const struct simulation_variant variants[] = {
        {.async_scheduling = false},
        {.tiers = (enum tiers)(1 + seed % 3),
         .async_scheduling = true,
         .mask_workers = seed % 3 > 0},
        {.tiers = (enum tiers)(seed / 2 % 4),
         .async_scheduling = seed % 2 == 0,
         .mask_workers = seed / 8 % 2 == 0,
         .drafts = (enum drafts)(1 + seed / 2 % 5)},
        {.tiers = (enum tiers)(seed / 3 % 4),
         .async_scheduling = seed % 3 != 0,
         .mask_workers = seed / 4 % 2 == 0,
         .drafts = (enum drafts)(seed % 6),
         .loses_ranks = true},
        {.tiers = (enum tiers)(seed / 5 % 4),
         .async_scheduling = true,
         .mask_workers = seed / 2 % 2 == 0,
         .drafts = seed % 2 == 0 ? DRAFTS_NONE : (enum drafts)(1 + seed / 2 % 4),
         .num_stages = 2,
         .loses_ranks = seed % 7 == 0},
    };
    static struct simulation sim;
    static struct ends ends;
    bool passed = true;
    ends.count = 0;
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]) && passed; i++) {
        simulation_begin(&sim, seed, &variants[i]);
        know_costs(&sim.core.speculation);
        run_variant(&sim, &ends, totals);
        simulation_finish(&sim);
        passed = !sim.broken;
    }
    return passed;
}

/* Prints them; false when one of them is 0. */
static bool print_totals(const struct totals *totals) {
    const struct counted rows[] = {
        {"steps", totals->steps},
        {"planned while another was in flight", totals->ahead},
        {"not planned before another was collected", totals->collected_first},
        {"supplied with late inputs", totals->supplied},
        {"tokens that a step took from the one before", totals->token_rows},
        {"rows thrown away", totals->dead_rows},
        {"rows whose mask was not found yet", totals->unmasked},
        {"jobs that found masks", totals->mask_jobs},
        {"forced tokens that no step sampled", totals->jumped},
        {"blocks that become free after a step in flight, summed over steps", totals->deferred},
        {"drafted tokens verified", totals->drafts.tokens},
        {"accepted", totals->drafts.accepted},
        {"of n-grams among them", totals->ngrams_accepted},
        {"proposed by a draft model", totals->drafts.of_model},
        {"accepted", totals->drafts.of_model_accepted},
        {"tokens that it computed before", totals->missed},
        {"rejected", totals->drafts.rejected},
        {"drafts accepted up to the end of a sequence", totals->drafts.ended},
        {"drafted tokens with a grammar", totals->drafts.masked},
        {"with a penalty", totals->drafts.penalised},
        {"after a preemption", totals->drafts.after_preemption},
        {"beyond a window", totals->drafts.in_windows},
        {"preemptions by swapping", totals->swaps},
        {"preemptions by recomputation", totals->recomputes},
        {"blocks swapped in", totals->swapped_in},
        {"blocks copied on write", totals->copies},
        {"tokens found in the prefix cache", totals->hits},
        {"blocks kept below the device", totals->kept},
        {"blocks that came back from there", totals->promoted},
        {"blocks written to a store", totals->stored},
        {"blocks read from it", totals->read},
        {"reads that failed", totals->failed_reads},
        {"prompts handed over", totals->handed_over.num_requests},
        {"tokens of these in the store", totals->handed_over.num_tokens},
        {"not in it", totals->handed_over.num_missing_tokens},
        {"prompts taken over", totals->taken_over.num_requests},
        {"tokens of these that were found", totals->taken_over.num_tokens},
        {"computed", totals->taken_over.num_missing_tokens},
        {"shared blocks, summed over steps", totals->shared},
        {"blocks out of the window, summed over steps", totals->dropped},
        {"steps with stalled readers", totals->stalls},
        {"choices finished", totals->finished},
        {"hypotheses of beam search among them", totals->beams},
        {"choices ended by their deadline", totals->late},
        {"with tokens", totals->late_in_midst},
        {"beams among them", totals->late_beams},
        {"unread", totals->late_unread},
        {"timed out before they ran", totals->queue_timeouts},
        {"choices aborted", totals->aborted},
        {"choices failed with the device", totals->failed},
        {"losses of ranks", totals->losses},
        {"with another step in flight", totals->losses_ahead},
        {"steps of suspects", totals->alone},
        {"choices given up after two losses", totals->crashed},
        {"requests refused", totals->refused},
        {"adapters loaded", totals->loads},
        {"unloaded while they were loading", totals->unloads_loading},
        {"unloaded while requests used them", totals->unloads_used},
        {"pieces of adapters in steps with tokens", totals->written},
        {"in steps without", totals->written_idle},
        {"calls before which adapters in use are written again", totals->rewritten},
        {"sequences with an adapter, summed over steps", totals->adapted},
        {"steps with several adapters", totals->mixed},
        {"of prompts found in the prefix cache", totals->adapter_hits},
    };
    return count_table_print(rows, sizeof(rows) / sizeof(rows[0]));
}

static uint64_t option(int argc, char **argv, const char *name, uint64_t fallback) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return strtoull(argv[i + 1], NULL, 10);
    return fallback;
}

int main(int argc, char **argv) {
    uint64_t num_seeds = option(argc, argv, "--seeds", 2000);
    uint64_t first_seed = option(argc, argv, "--first-seed", 1);
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was found is printed even if a seed never ends */
    uint64_t num_failed = 0, num_run = 0;
    struct totals totals = {0};
    for (; num_run < num_seeds && num_failed < 10; num_run++)
        num_failed += !run_seed(first_seed + num_run, &totals);
    bool all_occurred = print_totals(&totals);
    printf("%llu seeds, %llu broken\n", (unsigned long long)num_run,
           (unsigned long long)num_failed);
    if (num_run >= ENOUGH_SEEDS && !all_occurred)
        printf("a kind of event never occurred: the simulation shows nothing of it\n");
    return num_failed == 0 && (all_occurred || num_run < ENOUGH_SEEDS) ? 0 : 1;
}
