/* Private to models/weights: one rank's load. weights_plan.h says which tensors make up a model;
 * here single ones are found, checked and read, and what the rank keeps of them goes to its
 * backend. */
#ifndef QUIRE_MODELS_WEIGHTS_WEIGHTS_LOADER_H
#define QUIRE_MODELS_WEIGHTS_WEIGHTS_LOADER_H

#include "models/weights/weights.h"
#include "models/weights/weights_plan.h"

struct weights_loader {
    struct backend *backend;
    const struct model *model;
    struct weights_reader *reader;
    const struct weights_options *options;
    struct weights *weights; /* being filled; its `bytes` count what was taken */
    bool *bound;             /* [tensors of the file]: part of the model */
    /* What a chunk's rows are copied to where they are cut, or requantised: [WEIGHTS_CHUNK_BYTES].
     */
    void *scratch, *requantised;
    struct error *err;
};

/* The pointers before `weights`, and err, are set. On failure `loader` is to be finished all the
 * same. */
int weights_loader_init(struct weights_loader *loader);
void weights_loader_finish(struct weights_loader *loader);

/* out NULL: another rank's, of which nothing is kept here. key_bias: what is cut from the keys'
 * bias [kept KV heads], of a matrix of q, k and v; NULL: nothing is. */
int weights_loader_load_matrix(struct weights_loader *loader, const struct weights_matrix *plan,
                               struct key_bias *key_bias, struct matrix **out);
/* As float, whatever float type the file stores. Likewise. */
int weights_loader_load_norm(struct weights_loader *loader, const struct weights_norm *plan,
                             struct buffer *out);
/* Allocates device memory and counts it. */
int weights_loader_alloc(struct weights_loader *loader, size_t bytes, struct buffer *out);

/* Fails for a tensor that is not part of the model, unless it is known to be ignorable. */
int weights_loader_check_all_bound(const struct weights_loader *loader);

#endif
