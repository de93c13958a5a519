/* A rank with a draft model, and sequences of which the steps of a test are made. Each has blocks
 * of its own, by its place. */
#ifndef QUIRE_TESTS_UNIT_ENGINE_EXECUTOR_DRAFT_FIXTURE_H
#define QUIRE_TESTS_UNIT_ENGINE_EXECUTOR_DRAFT_FIXTURE_H

#include "engine/executor/process_executor.h"

enum { MAX_SEQS = 4, MAX_TOKENS = 96, MAX_ROWS = 32, MAX_LENGTH = 64, NUM_PLACES = 8 };
enum { BLOCK_SIZE = 16, SEQ_BLOCKS = MAX_LENGTH / BLOCK_SIZE, VOCAB_SIZE = 280 };

/* A model's own layer, in the place of a draft model's path. */
#define ITS_MTP_LAYER "MTP"

struct fixture {
    const char *gpu;  /* NULL: the CPU */
    enum dtype dtype; /* of activations, keys and values */
    struct model *model, *draft;
    struct executor *executor;
    struct executor_info info;
    void *memory; /* of the step, unless the executor owns it */
    struct batch_arena arena;
    struct step_result result;
    struct batch batch;
};

struct sequence {
    int32_t tokens[MAX_LENGTH];
    int32_t length;
    int32_t place; /* its blocks are the SEQ_BLOCKS from place * SEQ_BLOCKS on */
    float temperature;
    int32_t num_computed, num_drafted; /* computed by the model, and by its draft model */
};

/* Reads [DEVICE TYPE] from a test's arguments, for all fixtures; the CPU without them. */
void draft_fixture_set_device(int argc, char **argv);
/* Opens the models alone; draft: a path, ITS_MTP_LAYER, or NULL: none. */
void draft_fixture_open(struct fixture *f, const char *model, const char *draft);
void draft_fixture_close(struct fixture *f);
struct executor_config draft_fixture_config(const struct fixture *f);
/* The same with an executor. In a process, main must lead its argument rank-process to
 * rank_process_run. */
void draft_fixture_start(struct fixture *f, const char *model, const char *draft, bool is_process);
void draft_fixture_stop(struct fixture *f);

struct sequence draft_fixture_sequence(int32_t index, int32_t length, float temperature);
/* A step: begin, add sequences, run. A sequence adds what the model has not computed of it, then
 * drafts; those given, or if they are NULL zeros. */
void draft_fixture_begin(struct fixture *f);
void draft_fixture_add(struct fixture *f, const struct sequence *s, const int32_t *drafts,
                       int32_t num_drafts);
/* The same with a draft request, for what the draft model has not computed of it. */
void draft_fixture_add_drafted(struct fixture *f, const struct sequence *s, int32_t num_drafts);
void draft_fixture_run(struct fixture *f);
/* Runs a step of one sequence and returns its drafts. */
const int32_t *draft_fixture_draft(struct fixture *f, const struct sequence *s, int32_t num_drafts);
/* Swaps the blocks of a place out, to the first of the host's in reverse; and in the step that has
 * begun, in again to another place, which is copied to a third one. */
void draft_fixture_swap_out(struct fixture *f, int32_t place);
void draft_fixture_swap_in(struct fixture *f, int32_t place, int32_t copy);

void draft_fixture_assert_rows(const struct sample_output *a, const struct sample_output *b,
                               int32_t num_rows);
/* Neither planned nor created: ERROR_CONFIG with a message that begins so. */
void draft_fixture_assert_refused(const struct fixture *f, const struct executor_config *config,
                                  const char *message);
static inline size_t draft_fixture_block_bytes(const struct executor_info *info) {
    return info->memory.kv_bytes / (size_t)info->limits.num_blocks;
}

#endif
