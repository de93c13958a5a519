/* What the engine's process and the rank process send each other, over a socket that keeps messages
 * apart (SOCK_SEQPACKET). Both run the same program file, so a message is the struct as it lies in
 * memory. Each learns that the other has ended when the other end of its socket is closed. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_MESSAGE_H
#define QUIRE_ENGINE_EXECUTOR_RANK_MESSAGE_H

#include "config/base/error.h"
#include "engine/executor/executor.h"
#include "models/batch.h"

#include <stddef.h>
#include <stdint.h>

/* The rank process finds its end of the socket, the step_files, the turns if it takes part in them
 * (step_turns.h), and the memory of host pools if these are shared, under these numbers. The
 * engine's process has them under numbers of at least RANK_MIN_FD. */
#define RANK_SOCKET_FD 3
#define RANK_BATCHES_FD 4
#define RANK_RESULTS_FD 5
#define RANK_TURNS_FD 6
#define RANK_HOST_FD 7
#define RANK_MIN_FD 16

#define RANK_MAX_PATH 4096

enum rank_message_kind {
    /* From the engine. */
    RANK_START,  /* the first one */
    RANK_MEMORY, /* before the first step */
    RANK_SUBMIT,
    RANK_SUPPLY,
    RANK_WAIT, /* answered by RANK_DONE */
    /* From the rank process. */
    RANK_PROGRESS,
    RANK_READY, /* or RANK_FAILED, after a start */
    RANK_FAILED,
    RANK_DONE,
};

/* Strings replace the configuration's pointers. */
struct rank_start {
    struct executor_config config;
    char device[32];
    char cpu_isa[32], gpu_isa[32]; /* empty: NULL */
    char model_path[RANK_MAX_PATH];
    char draft_path[RANK_MAX_PATH]; /* of the draft model, with has_mtp the model's; empty: none */
    char packed_cache[RANK_MAX_PATH]; /* the folder; empty: none */
    char build[72];                   /* of its files */
    int32_t turn_slot;                /* -1: there are no turns */
    int32_t log_level;
};

struct rank_message {
    enum rank_message_kind kind;
    union {
        struct rank_start start;
        struct batch_capacity capacity; /* MEMORY: of a step */
        int32_t step;                   /* SUBMIT, SUPPLY */
        struct {
            size_t bytes_read, num_bytes;
        } progress;
        struct executor_info info; /* READY */
        struct {
            struct error error; /* FAILED, or DONE unless its code is ERROR_NONE */
            int32_t num_sample_rows;
            int32_t num_ranks; /* number of ranks whose statistics follow; 0: not known */
            struct rank_stats ranks[BACKEND_MAX_RANKS];
        } done;
    };
};

/* Returns -1 with errno when the other end is closed, or the system refuses. Any thread. */
int rank_message_send(int fd, const struct rank_message *message);
/* Waits for a message. Returns -1 with errno when the other end is closed; EBADMSG: what arrived is
 * not a message. */
int rank_message_receive(int fd, struct rank_message *out);

/* Checks what came with RANK_READY against what was requested: sizes must be the requested ones, or
 * ones that could have been chosen; enum values must exist; text must end. Returns -1 with
 * ERROR_RESTART and what is wrong. */
int rank_message_check_ready(const struct executor_info *info,
                             const struct executor_config *requested, struct error *err);
/* Checks that the text that came with RANK_FAILED or RANK_DONE ends. Returns -1 with ERROR_RESTART
 * and what is wrong. */
int rank_message_check_error(const struct error *reported, struct error *err);

/* Checks what came for the step that was waited for first. It must be RANK_DONE, which may carry an
 * error. Without an error, the result must be possible for the batch: its number of rows, tokens of
 * the vocabulary, drafts too, as many top logprobs as each row wants. Returns -1 with ERROR_RESTART
 * and what is wrong. */
int rank_message_check_done(const struct rank_message *message, const struct batch *batch,
                            const struct step_result *result, int32_t vocab_size,
                            struct error *err);

/* --- The memory of steps --- */

/* The memory of the steps, which the engine's process and the rank process share: two files, of
 * which the first holds the batches of all steps and the second their results. Both processes map
 * the files so that each step is one piece of memory in the layout that step_memory_bind expects.
 *
 * The rank process can write only to the results. A stray write to a batch is a SIGSEGV there, and
 * the first file is sealed against any writable mapping (memfd_create(2), F_SEAL_FUTURE_WRITE), so
 * what the engine reads back from its own batches is what it wrote. Neither file can be shortened,
 * which would cause a SIGBUS in the other process. */

/* Descriptors of the two files; -1: none. */
struct step_files {
    int batches, results;
};

struct step_mapping {
    char *memory; /* of EXECUTOR_MAX_STEPS steps, one after the other; NULL: none */
    size_t batch_bytes, result_bytes; /* of one step, whole pages */
};

/* Creates both files, empty, with descriptors of at least min_fd that are closed on exec. */
int step_files_create(struct step_files *out, int min_fd, struct error *err);
void step_files_close(struct step_files *files); /* accepts descriptors that are -1 */

/* Gives the files their size and seals, and maps both for writing. Called once, by the engine's
 * process. Returns -1 when memory is short or the system refuses. */
int step_mapping_create(struct step_mapping *mapping, const struct batch_capacity *capacity,
                        const struct step_files *files);
/* Maps the batches for reading and the results for writing. Called by the rank process. */
int step_mapping_open(struct step_mapping *mapping, const struct batch_capacity *capacity,
                      const struct step_files *files);
void step_mapping_finish(struct step_mapping *mapping); /* accepts a zeroed one */

/* Return the memory of a step; and the step in whose memory an address lies. */
void *step_mapping_step(const struct step_mapping *mapping, int32_t step);
int32_t step_mapping_find(const struct step_mapping *mapping, const void *address);

#endif
