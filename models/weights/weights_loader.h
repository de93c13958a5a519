/* Private to models/: what loading weights has in hand. weights.c says which tensors make up a
 * model, weights_loader.c finds, checks and reads single ones, weights_matrix.c streams them into
 * matrices. */
#ifndef QUIRE_MODELS_WEIGHTS_LOADER_H
#define QUIRE_MODELS_WEIGHTS_LOADER_H

#include "models/weights/tensor_names.h"
#include "models/weights/weights.h"

/* Bytes of a tensor read at a time, in whole rows. No row of a supported model is longer. */
#define WEIGHTS_PIECE_BYTES ((size_t)16 << 20)

struct weights_loader {
    struct backend *backend;
    const struct model *model;
    const struct weights_options *options;
    struct weights *weights; /* being filled; its `bytes` count what was taken */
    bool *bound;             /* [tensors of the file]: it was asked for */
    void *piece;             /* [WEIGHTS_PIECE_BYTES] */
    void *requantised;       /* [WEIGHTS_PIECE_BYTES]: the piece in another type */
    struct content_hash *hash;
    struct error *err;
};

/* A tensor's place in the model, and its name. */
struct tensor_place {
    enum tensor_role role;
    int32_t layer;
};

/* On failure `loader` is to be finished all the same. */
int weights_loader_init(struct weights_loader *loader);
void weights_loader_finish(struct weights_loader *loader);

bool weights_loader_has_bias(const struct weights_loader *loader, struct tensor_place place);
/* Rows of the weight if the file has it, else 0. */
int64_t weights_loader_num_rows(const struct weights_loader *loader, struct tensor_place place);
/* A tensor of this shape and a known type; rows 0: a vector of cols elements. NULL with the error
 * set otherwise. */
const struct tensor_info *weights_loader_find(struct weights_loader *loader,
                                              struct tensor_place place, const char *suffix,
                                              int32_t rows, int32_t cols);
/* Bytes of a tensor that was found, into the piece; each is read once, in order. */
int weights_loader_read(struct weights_loader *loader, const struct tensor_info *tensor,
                        size_t offset, size_t bytes);
/* A vector as float, whatever float type the file stores; the caller frees. NULL on failure. */
float *weights_loader_read_vector(struct weights_loader *loader, struct tensor_place place,
                                  const char *suffix, int32_t width);
int weights_loader_alloc(struct weights_loader *loader, size_t bytes, struct buffer *out);
/* Fails for a tensor nobody asked for, unless it is known to be spare. */
int weights_loader_check_all_bound(const struct weights_loader *loader);

/* Some rows of a matrix. */
struct weights_part {
    struct tensor_place place;
    int32_t rows;
    bool biased;
};

/* The type a matrix of rows of `cols` elements is held in. */
enum dtype weights_matrix_dtype(const struct weights_options *options, enum dtype stored,
                                int64_t cols);
/* The parts one below the other; their biases are multiplied by bias_scale. */
int weights_matrix_load(struct weights_loader *loader, const struct weights_part *parts,
                        int num_parts, int32_t cols, float bias_scale, struct matrix **out);

#endif
