/* Private to models/: one load of a rank's weights. weights.c says which tensors make up a model;
 * here single ones are found, checked and read, and matrices streamed to the backend. */
#ifndef QUIRE_MODELS_WEIGHTS_LOADER_H
#define QUIRE_MODELS_WEIGHTS_LOADER_H

#include "models/weights/tensor_names.h"
#include "models/weights/weights.h"

/* Bytes of a tensor that are read at a time, in whole rows. No row of a supported model is longer. */
#define WEIGHTS_CHUNK_BYTES ((size_t)16 << 20)

struct weights_loader {
    struct backend *backend;
    const struct model *model;
    const struct weights_options *options;
    struct weights *weights; /* being filled; its `bytes` count what was taken */
    bool *bound;             /* [tensors of the file]: part of the model */
    void *chunk;             /* [WEIGHTS_CHUNK_BYTES] */
    void *requantised;       /* [WEIGHTS_CHUNK_BYTES]: the chunk in another type */
    struct content_hash *hash;
    struct error *err;
};

/* A tensor's place in the model, and its name. */
struct tensor_place {
    enum tensor_role role;
    int32_t layer;
};

/* Some rows of a matrix. */
struct weights_part {
    struct tensor_place place;
    int32_t rows;
    bool biased;
};

/* backend, model, options and err are set. On failure `loader` is to be finished all the same. */
int weights_loader_init(struct weights_loader *loader);
void weights_loader_finish(struct weights_loader *loader);

bool weights_loader_has_bias(const struct weights_loader *loader, struct tensor_place place);
/* Returns the rows of the weight if the file has it, else 0. */
int64_t weights_loader_num_rows(const struct weights_loader *loader, struct tensor_place place);

/* Reads a vector as float, whatever float type the file stores; the caller frees. NULL on failure. */
float *weights_loader_read_vector(struct weights_loader *loader, struct tensor_place place,
                                  const char *suffix, int32_t width);
/* Loads the parts one below the other; their biases are multiplied by bias_scale. */
int weights_loader_load_matrix(struct weights_loader *loader, const struct weights_part *parts,
                               int num_parts, int32_t cols, float bias_scale, struct matrix **out);
/* Returns the type that a matrix of rows of `cols` elements is held in. */
enum dtype weights_loader_held_dtype(const struct weights_options *options, enum dtype stored,
                                     int64_t cols);
/* Allocates device memory and counts it. */
int weights_loader_alloc(struct weights_loader *loader, size_t bytes, struct buffer *out);

/* Fails for a tensor that is not part of the model, unless it is known to be ignorable. */
int weights_loader_check_all_bound(const struct weights_loader *loader);

#endif
