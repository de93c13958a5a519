#include "models/tokenizer/tokenizer_spec.h"

#include <stdlib.h>
#include <sys/random.h>

struct spec_block {
    struct spec_block *next;
    _Alignas(max_align_t) char data[];
};

void *tokenizer_spec_alloc(struct tokenizer_spec *spec, size_t bytes) {
    if (bytes > SIZE_MAX - sizeof(struct spec_block))
        return NULL;
    struct spec_block *block = calloc(1, sizeof(*block) + bytes);
    if (block == NULL)
        return NULL;
    block->next = spec->blocks;
    spec->blocks = block;
    return block->data;
}

void tokenizer_spec_finish(struct tokenizer_spec *spec) {
    for (struct spec_block *block = spec->blocks, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    *spec = (struct tokenizer_spec){0};
}

uint64_t tokenizer_spec_seed(void) {
    uint64_t seed = 0;
    return getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == sizeof(seed) ? seed : 0;
}
