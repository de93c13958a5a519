/* Private to models/weights: one rank's load. weights_plan.h defines which tensors make up a model;
 * here individual ones are found, checked and read, and the rank's share of them is passed to its
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
    struct weights *weights; /* being filled; its `bytes` count what was allocated */
    bool *bound;             /* [tensors of the file]: part of the model */
    /* Destination of a chunk's rows if they are cut or requantised: [WEIGHTS_CHUNK_BYTES].
     */
    void *scratch, *requantised;
    void *assembled; /* rows of a source that assembles them; allocated when first needed */
    struct error *err;
};

/* The pointers before `weights`, and err, are set. `loader` must be finished even on failure. */
int weights_loader_init(struct weights_loader *loader);
void weights_loader_finish(struct weights_loader *loader);

/* out NULL: it belongs to another rank, and nothing of it is kept here. key_bias: receives what is
 * cut from the keys' bias [kept KV heads], for a matrix of q, k and v; NULL: nothing is cut. */
int weights_loader_load_matrix(struct weights_loader *loader, const struct weights_matrix *plan,
                               struct key_bias *key_bias, struct matrix **out);
/* The same for a norm, loaded as float from any float type in the file. */
int weights_loader_load_norm(struct weights_loader *loader, const struct weights_norm *plan,
                             struct buffer *out);
/* Allocates device memory and counts it. */
int weights_loader_alloc(struct weights_loader *loader, size_t bytes, struct buffer *out);

/* What is known of a matrix once its tensors were found. */
struct matrix_source {
    const struct weights_matrix *plan;
    struct matrix_part *parts; /* of each of the rank's experts; then the padding */
    int num_parts;
    enum dtype stored[WEIGHTS_MAX_PARTS]; /* of the files' rows */
    enum dtype types[WEIGHTS_MAX_PARTS];  /* that the parts are held in */
    float *biases[WEIGHTS_MAX_PARTS];     /* [own experts][kept rows]; NULL: none */
};

/* weights_rows.c: reads one part of a matrix and fills in what is kept. part_row: among an expert's
 * rows of the matrix, the first of the part; matrix NULL: nothing is kept. */
int weights_rows_load(struct weights_loader *loader, const struct matrix_source *source, int part,
                      int32_t part_row, struct matrix *matrix);
/* Sets an error with the tensor's name before the reason; returns -1. */
int weights_rows_explain(const struct weights_loader *loader, const struct tensor_info *tensor,
                         enum error_code code, const char *why);

/* Fails for a tensor that is not part of the model, unless it is known to be ignorable. */
int weights_loader_check_all_bound(const struct weights_loader *loader);

#endif
