/* What the engine's process and the rank process say to each other, over a socket whose ends keep
 * messages apart (SOCK_SEQPACKET). Both run the same program file, so a message is the struct as it
 * lies in memory. A socket whose other end is closed is how either learns that the other has ended. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_MESSAGE_H
#define QUIRE_ENGINE_EXECUTOR_RANK_MESSAGE_H

#include "engine/executor/executor.h"

/* The rank process finds its end of the socket, and the files of step_mapping.h, under these
 * numbers. */
#define RANK_SOCKET_FD 3
#define RANK_BATCHES_FD 4
#define RANK_RESULTS_FD 5

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

/* Strings take the place of the configuration's pointers. */
struct rank_start {
    struct executor_config config;
    char device[32];
    char cpu_isa[32]; /* empty: NULL */
    char model_path[RANK_MAX_PATH];
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
            int32_t num_ranks; /* whose numbers follow; 0: not known */
            struct rank_stats ranks[BACKEND_MAX_RANKS];
        } done;
    };
};

/* Returns -1 with errno when the other end is closed, or the system refuses. Any thread. */
int rank_message_send(int fd, const struct rank_message *message);
/* Waits for a message. Returns -1 with errno when the other end is closed; EBADMSG: what came is
 * none. */
int rank_message_receive(int fd, struct rank_message *out);

/* Checks what came with RANK_READY for what was requested: sizes that are those, or that a choice
 * could have been, values that are there, text with an end. Returns -1 with ERROR_RESTART and what
 * is wrong. */
int rank_message_check_ready(const struct executor_info *info,
                             const struct executor_config *requested, struct error *err);
/* Checks that what came with RANK_FAILED, or RANK_DONE, is text with an end. Likewise. */
int rank_message_check_error(const struct error *reported, struct error *err);

/* Checks what came for the step that was waited for first: that it is RANK_DONE, which it is with
 * an error too, and otherwise that the result is one that the batch may have: its number of rows,
 * tokens of the vocabulary, as many top logprobs as a row wants. Returns -1 with ERROR_RESTART and
 * what is wrong. */
int rank_message_check_done(const struct rank_message *message, const struct batch *batch,
                            const struct step_result *result, int32_t vocab_size,
                            struct error *err);

#endif
