#include "server/program/vocabulary_loader.h"

#include "config/base/check.h"

#include <string.h>

static void *load(void *context) {
    struct vocabulary_loader *loader = context;
    loader->status =
        grammar_vocabulary_create(loader->tokenizer, &loader->vocabulary, &loader->err);
    return NULL;
}

int vocabulary_loader_start(struct vocabulary_loader *loader, const struct tokenizer *tokenizer,
                            struct error *err) {
    *loader = (struct vocabulary_loader){.tokenizer = tokenizer};
    int failure = pthread_create(&loader->thread, NULL, load, loader);
    if (failure != 0)
        return error_set(err, ERROR_MEMORY, "no thread to prepare the vocabulary: %s",
                         strerror(failure));
    loader->is_running = true;
    return 0;
}

int vocabulary_loader_wait(struct vocabulary_loader *loader, struct error *err) {
    if (loader->is_running)
        CHECK(pthread_join(loader->thread, NULL) == 0);
    loader->is_running = false;
    if (loader->status != 0)
        *err = loader->err;
    return loader->status;
}

void vocabulary_loader_finish(struct vocabulary_loader *loader) {
    if (loader->is_running)
        CHECK(pthread_join(loader->thread, NULL) == 0);
    grammar_vocabulary_destroy(loader->vocabulary);
    memset(loader, 0, sizeof(*loader));
}
