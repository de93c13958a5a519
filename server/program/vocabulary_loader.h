/* Prepares the vocabulary for grammars while the weights load: this takes tens of milliseconds, up
 * to a few hundred for the largest vocabularies. It uses one thread, from start to wait. */
#ifndef QUIRE_SERVER_PROGRAM_VOCABULARY_LOADER_H
#define QUIRE_SERVER_PROGRAM_VOCABULARY_LOADER_H

#include "config/base/error.h"
#include "engine/grammar/machine/grammar.h"

#include <pthread.h>
#include <stdbool.h>

struct vocabulary_loader {
    const struct tokenizer *tokenizer;
    pthread_t thread;
    bool is_running;
    struct grammar_vocabulary *vocabulary; /* once vocabulary_loader_wait has succeeded */
    int status;
    struct error err;
};

/* The tokenizer outlives the loader. Fails with ERROR_MEMORY when no thread can be created. */
int vocabulary_loader_start(struct vocabulary_loader *loader, const struct tokenizer *tokenizer,
                            struct error *err);
int vocabulary_loader_wait(struct vocabulary_loader *loader, struct error *err);
/* Waits, and frees the vocabulary. Accepts a zeroed one. */
void vocabulary_loader_finish(struct vocabulary_loader *loader);

#endif
