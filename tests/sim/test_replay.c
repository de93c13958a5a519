/* Random loads (simulation.h) are recorded and run again on another fake executor: every step must
 * be equal. Recordings are short, so that most seeds make several: each must run from its beginning
 * without the others. One token that is changed, in the executor of the replay, must be found and
 * named; a recording that is cut off must run up to there.
 *
 *   test_replay [--seeds N] [--first-seed S] */
#include "config/base/check.h"
#include "config/base/log.h"
#include "engine/record/replay.h"
#include "tests/sim/fake_lora.h"
#include "tests/sim/fake_tokenizer.h"
#include "tests/sim/simulation.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RECORDINGS 256

struct recordings {
    struct byte_buffer items[MAX_RECORDINGS];
    uint64_t num_steps[MAX_RECORDINGS]; /* of each */
    int32_t count;
};

static int keep(void *context, bool begins, const void *data, size_t length) {
    struct recordings *recordings = context;
    if (begins && recordings->count == MAX_RECORDINGS)
        return -1;
    recordings->count += begins;
    byte_buffer_append(&recordings->items[recordings->count - 1], data, length);
    recordings->num_steps[recordings->count - 1] += ((const char *)data)[0] == RECORD_STEP;
    return 0;
}

static struct record_header header_of(const struct simulation *sim) {
    const struct engine_core_config *config = &sim->config;
    return (struct record_header){
        .options = "model=fake\n",
        .num_ranks = 1,
        .num_stages = config->num_stages,
        .kv_bytes = 1,
        .limits = sim->limits,
        .core = *config,
    };
}

/* Until everything has ended, or the simulated server stops. */
static void record(struct simulation *sim, struct recordings *recordings) {
    const struct recorder_config config = {
        .max_bytes = sim->seed % 2 == 0 ? INT64_MAX : 6000, .write = keep, .context = recordings};
    const struct record_header header = header_of(sim);
    struct error err;
    CHECK(recorder_create(&config, &header, &sim->recorder, &err) == 0);
    int64_t limit = simulation_step_limit(sim);
    for (; !sim->broken && !simulation_is_over(sim) && sim->now != sim->shutdown_at; sim->now++) {
        if (recorder_is_due(sim->recorder) && engine_core_renew(&sim->core))
            recorder_begin(sim->recorder, &sim->core);
        if (random_once_in(&sim->random, 40)) {
            recorder_flush(sim->recorder);
            engine_core_flush_cache(&sim->core);
        }
        simulation_submit(sim);
        sim->num_ran = 0;
        bool ran = engine_core_step(&sim->core);
        recorder_end_step(sim->recorder, &sim->core, ran);
        simulation_read_streams(sim);
        EXPECT(sim, sim->now < limit, limit);
    }
    recorder_destroy(sim->recorder);
    sim->recorder = NULL;
}

/* --- The replay's executor --- */

/* Runs steps on a fake one of its own, and may change a token of one of them. */
struct second_executor {
    struct executor base;
    struct fake_executor fake;
    struct step_result *results[EXECUTOR_MAX_STEPS];
    uint64_t num_submitted, num_waited;
    uint64_t change_at;     /* the first step from here on that samples; 0: none */
    int32_t recorded_token; /* that was changed; -1: none yet */
    bool lacks_adapters;    /* those of the recording are not there */
    uint64_t other_numbers; /* added to those of adapters */
};

static void submit(struct executor *executor, const struct batch *batch,
                   struct step_result *result) {
    struct second_executor *second = (struct second_executor *)executor;
    second->results[second->num_submitted++ % EXECUTOR_MAX_STEPS] = result;
    second->fake.base.ops->submit(&second->fake.base, batch, result);
}

static void supply(struct executor *executor) {
    struct second_executor *second = (struct second_executor *)executor;
    second->fake.base.ops->supply(&second->fake.base);
}

static int wait(struct executor *executor, struct error *err) {
    struct second_executor *second = (struct second_executor *)executor;
    struct step_result *result = second->results[second->num_waited++ % EXECUTOR_MAX_STEPS];
    int status = second->fake.base.ops->wait(&second->fake.base, err);
    bool changes = second->change_at > 0 && second->num_waited >= second->change_at &&
                   second->recorded_token < 0 && result->num_sample_rows > 0;
    if (status == 0 && changes) {
        struct sample_output *last = &result->rows[result->num_sample_rows - 1];
        second->recorded_token = last->token;
        last->token = (last->token + 1) % FAKE_VOCAB_SIZE;
    }
    return status;
}

static void destroy(struct executor *executor) {
}

/* A name ends with the number. */
static struct adapter *open_adapter(void *context, const char *name, struct error *err) {
    const struct second_executor *second = context;
    return fake_lora_adapter(name, strtoull(name + 1, NULL, 10) + second->other_numbers);
}

static int replay(const struct simulation *sim, const void *data, size_t length,
                  struct second_executor *second, struct record_frames *frames,
                  struct replay_result *result, struct error *err) {
    static const struct executor_ops ops = {
        .submit = submit, .supply = supply, .wait = wait, .destroy = destroy, EXECUTOR_RUNS_STEPS};
    static struct record_header header;
    enum record_kind kind;
    struct record_input in;
    *frames = (struct record_frames){.file = fmemopen((void *)data, length, "r")};
    CHECK(frames->file != NULL);
    CHECK(record_frames_next(frames, &kind, &in, err) == 1 && kind == RECORD_HEADER);
    CHECK(record_header_read(&in, &header, err) == 0);
    fake_executor_init(&second->fake, header.limits.num_blocks, header.limits.block_size,
                       header.limits.max_num_batched_tokens);
    fake_executor_add_host(&second->fake, header.limits.num_host_blocks);
    if (sim->config.has_draft_model)
        fake_executor_add_draft_model(&second->fake, sim->config.schedule.has_mtp);
    second->fake.max_num_seqs = header.limits.max_num_seqs;
    second->fake.window = header.limits.window;
    second->fake.num_full_groups = header.limits.num_full_groups;
    second->base.ops = &ops;
    const struct replay_config config = {
        .header = &header,
        .frames = frames,
        .executor = &second->base,
        .tokenizer = fake_tokenizer(),
        .drafter = sim->drafter,
        .vocabulary = sim->vocabulary,
        .mask_budget = sim->variant.mask_workers ? sim->config.mask_budget : INT64_MAX,
        .open_adapter = second->lacks_adapters ? NULL : open_adapter,
        .context = second};
    int status = replay_run(&config, result, err);
    fake_executor_finish(&second->fake);
    record_frames_finish(frames);
    fclose(frames->file);
    return status;
}

/* --- What must hold --- */

struct totals {
    uint64_t recordings, successors, steps, requests, tokens, events, changed, cut, open, refused;
};

static void check_equal(struct simulation *sim, const struct recordings *recordings, int32_t index,
                        struct totals *totals) {
    const struct byte_buffer *bytes = &recordings->items[index];
    struct second_executor second = {.recorded_token = -1};
    struct record_frames frames;
    struct replay_result result;
    struct error err = {0};
    int status = replay(sim, bytes->data, bytes->length, &second, &frames, &result, &err);
    if (status != 0 || result.differs)
        printf("recording %d, step %llu: %s\n", index, (unsigned long long)result.num_steps,
               status != 0 ? err.message : result.difference);
    EXPECT(sim, status == 0 && !result.differs, index);
    EXPECT(sim, result.num_steps == recordings->num_steps[index], (int64_t)result.num_steps);
    EXPECT(sim, frames.cut == 0 && frames.read == bytes->length, (int64_t)frames.cut);
    totals->recordings++;
    totals->successors += index > 0;
    totals->steps += result.num_steps;
    totals->requests += result.num_requests;
    totals->tokens += result.num_tokens;
    totals->events += result.num_events;
    totals->open += result.num_open;
}

/* A beam's token lies among its candidates, which are compared as bits; else it is named. Of a
 * recording that ends with open requests, or a failure, it may be one of a step that nobody saw. */
static void check_changed(struct simulation *sim, const struct byte_buffer *bytes,
                          uint64_t num_steps, struct totals *totals) {
    struct second_executor second = {.recorded_token = -1,
                                     .change_at = 1 + sim->seed % (num_steps + 1)};
    struct record_frames frames;
    struct replay_result result;
    struct error err;
    char named[64];
    CHECK(replay(sim, bytes->data, bytes->length, &second, &frames, &result, &err) == 0);
    bool is_compared = sim->executor.fail_at_call == 0 && !sim->variant.loses_ranks &&
                       (result.differs || result.num_open == 0);
    if (second.recorded_token < 0 || !is_compared)
        return;
    EXPECT(sim, result.differs, second.recorded_token);
    snprintf(named, sizeof(named), "recorded token %d ", second.recorded_token);
    bool is_named = strstr(result.difference, named) != NULL ||
                    strstr(result.difference, "bits of logprobs") != NULL;
    if (!is_named)
        printf("%s\n", result.difference);
    EXPECT(sim, is_named, second.recorded_token);
    totals->changed++;
}

static void check_cut(struct simulation *sim, const struct byte_buffer *bytes,
                      struct totals *totals) {
    size_t header = RECORD_FRAME_EXTRA_BYTES + (size_t)(unsigned char)bytes->data[1] +
                    ((size_t)(unsigned char)bytes->data[2] << 8);
    size_t length = header + sim->seed % (bytes->length - header);
    struct second_executor second = {.recorded_token = -1};
    struct record_frames frames;
    struct replay_result result;
    struct error err;
    int status = replay(sim, bytes->data, length, &second, &frames, &result, &err);
    EXPECT(sim, status == 0 && !result.differs, (int64_t)length);
    EXPECT(sim, frames.read + frames.cut == length, (int64_t)frames.cut);
    totals->cut += frames.cut > 0;
}

/* Of a recording that has some, in one line that names the adapter. */
static void check_other_adapters(struct simulation *sim, const struct byte_buffer *bytes,
                                 struct totals *totals) {
    for (int lacks = 0; lacks < 2 && sim->num_loads > 0; lacks++) {
        struct second_executor second = {
            .recorded_token = -1, .lacks_adapters = lacks, .other_numbers = 1};
        struct record_frames frames;
        struct replay_result result;
        struct error err = {0};
        if (replay(sim, bytes->data, bytes->length, &second, &frames, &result, &err) == 0)
            return; /* they came later */
        EXPECT(sim, err.code == ERROR_CONFIG, err.code);
        EXPECT(sim, strstr(err.message, "adapter \"a") != NULL, lacks);
        EXPECT(sim, lacks || strstr(err.message, "its numbers are not the same") != NULL, lacks);
        totals->refused++;
    }
}

static bool run_seed(uint64_t seed, struct totals *totals) {
    const struct simulation_variant variant = {
        .tiers = seed % 7 < 3 ? TIERS_HOST : TIERS_NONE,
        .async_scheduling = seed % 3 != 0,
        .mask_workers = seed % 2 == 0,
        .drafts = seed % 4 == 1   ? DRAFTS_MODEL
                  : seed % 4 == 0 ? DRAFTS_NONE
                                  : DRAFTS_NGRAM,
        .num_stages = seed % 4 == 3 ? 2 : 1,
        .loses_ranks = seed % 5 == 0,
    };
    static struct simulation sim;
    static struct recordings recordings;
    simulation_begin(&sim, seed, &variant);
    record(&sim, &recordings);
    for (int32_t i = 0; i < recordings.count && !sim.broken; i++)
        check_equal(&sim, &recordings, i, totals);
    if (!sim.broken && recordings.count > 0) {
        check_changed(&sim, &recordings.items[0], recordings.num_steps[0], totals);
        check_cut(&sim, &recordings.items[0], totals);
        check_other_adapters(&sim, &recordings.items[0], totals);
    }
    for (int32_t i = 0; i < recordings.count; i++)
        byte_buffer_finish(&recordings.items[i]);
    memset(&recordings, 0, sizeof(recordings));
    bool passed = !sim.broken;
    simulation_finish(&sim);
    return passed;
}

static uint64_t option(int argc, char **argv, const char *name, uint64_t fallback) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return strtoull(argv[i + 1], NULL, 10);
    return fallback;
}

int main(int argc, char **argv) {
    uint64_t num_seeds = option(argc, argv, "--seeds", 1000);
    uint64_t first_seed = option(argc, argv, "--first-seed", 1);
    uint64_t num_failed = 0, num_run = 0;
    struct totals totals = {0};
    log_set_level(LOG_ERROR); /* recordings that pause */
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (; num_run < num_seeds && num_failed < 10; num_run++)
        num_failed += !run_seed(first_seed + num_run, &totals);
    printf("%llu seeds, %llu broken: %llu recordings, of which %llu were begun later; %llu steps, "
           "%llu requests, %llu tokens, %llu events; %llu found changed, %llu cut, %llu requests "
           "open, %llu other adapters refused\n",
           (unsigned long long)num_run, (unsigned long long)num_failed,
           (unsigned long long)totals.recordings, (unsigned long long)totals.successors,
           (unsigned long long)totals.steps, (unsigned long long)totals.requests,
           (unsigned long long)totals.tokens, (unsigned long long)totals.events,
           (unsigned long long)totals.changed, (unsigned long long)totals.cut,
           (unsigned long long)totals.open, (unsigned long long)totals.refused);
    bool all_occurred =
        totals.successors > 0 && totals.changed > 0 && totals.cut > 0 && totals.refused > 0;
    return num_failed == 0 && (all_occurred || num_seeds < 100) ? 0 : 1;
}
