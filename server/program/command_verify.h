/* Checks the model's files against their SHA-256, where one is known (--verify-weights;
 * command_checksum.h). Runs in a thread of its own while the weights load, so that both read a file
 * from the disk but once; the files that are hashed are those that were opened, whatever their
 * names stand for now. */
#ifndef QUIRE_SERVER_COMMAND_VERIFY_H
#define QUIRE_SERVER_COMMAND_VERIFY_H

#include "config/base/error.h"
#include "models/files/tensor_file.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct command_verify {
    const struct tensor_file *file;
    pthread_t thread;
    bool is_running;
    atomic_bool is_cancelled;
    int status;
    struct error err;
    int num_verified;    /* files that have the SHA-256 that is known */
    char source[280];    /* where the first one's SHA-256 was found */
    const char *unknown; /* the first file of which none is known; NULL: all are */
};

/* Starts the thread. The file outlives it. ERROR_MEMORY when there is no thread to be had. */
int command_verify_start(struct command_verify *verify, const struct tensor_file *file,
                         struct error *err);
/* Waits until all files have been read. ERROR_MODEL names one that has another SHA-256. */
int command_verify_wait(struct command_verify *verify, struct error *err);
/* Describes the result in one line, after command_verify_wait succeeded. */
void command_verify_describe(const struct command_verify *verify, char *out, size_t capacity);
/* Stops early. Accepts a zeroed one. */
void command_verify_finish(struct command_verify *verify);

#endif
