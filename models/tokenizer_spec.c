#include "models/tokenizer_spec.h"

#include <stdlib.h>

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
