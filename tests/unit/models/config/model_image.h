/* Small models in memory for tests of weights and of the forward pass: a configuration's tensors,
 * by whatever naming, with values that follow from their names. Failures end the test. */
#ifndef QUIRE_TESTS_UNIT_MODELS_MODEL_IMAGE_H
#define QUIRE_TESTS_UNIT_MODELS_MODEL_IMAGE_H

#include "models/config/model.h"
#include "models/config/tensor_names.h"

#include "tests/unit/models/gguf_writer.h"

enum { IMAGE_MAX_TENSORS = 96, IMAGE_LAYERS = 2 };

struct image_tensor {
    char name[TENSOR_NAME_BYTES];
    int32_t experts; /* 0: the tensor has no such dimension */
    int32_t rows;    /* 0: a vector */
    int32_t cols;
    enum dtype dtype;
    float factor; /* of every value; 0: 1 */
};

struct model_image {
    struct model model; /* file: open from model_image_open to model_image_finish */
    struct image_tensor tensors[IMAGE_MAX_TENSORS];
    int num_tensors;
    struct gguf_writer writer;
};

/* How the file stores what the configuration leaves open. */
struct image_form {
    bool fused;  /* qkv in one tensor, gate and up in one */
    bool biased; /* every matrix but the embedding and the head */
    enum dtype dtype;
};

/* Makes layer 1 sparse: 4 experts of 32, of which a token chooses 2. */
void model_image_set_sparse(struct model_config *config);

/* Makes attention latent: of each token 32 elements and 8 rotated ones are cached, of which 6 heads
 * have keys of 24 + 8 elements and values of 16. q_rank: see latent_config. */
void model_image_set_latent(struct model_config *config, int32_t q_rank);

/* A LLaMA of IMAGE_LAYERS layers: hidden 64, 6 heads of 16 on 2, FFN 96, vocabulary 40. */
struct model_config model_image_config(void);

void model_image_init(struct model_image *image, const struct model_config *config,
                      struct image_form form);
/* One more tensor, or another of the same name instead. */
void model_image_put(struct model_image *image, const char *name, int32_t rows, int32_t cols,
                     enum dtype dtype);
/* Multiplies every value of a tensor. */
void model_image_scale(struct model_image *image, enum tensor_role role, int32_t layer,
                       const char *suffix, float factor);
void model_image_remove(struct model_image *image, const char *name);
/* Writes the file "m.gguf" and opens it as model.file. */
void model_image_open(struct model_image *image);
/* Accepts an image that is not open. */
void model_image_finish(struct model_image *image);

/* [experts][rows][cols] of a tensor as the file rounds them, rows 0: [cols]; the caller frees. */
float *model_image_values(const struct image_tensor *tensor);
const struct image_tensor *model_image_find(const struct model_image *image, enum tensor_role role,
                                            int32_t layer, const char *suffix);
/* The weights of an expert, [rows][cols]; the caller frees. GGUF names: in one tensor with those of
 * the others; folders': in one of its own. */
float *model_image_expert(const struct model_image *image, enum tensor_role role, int32_t layer,
                          int32_t expert);

#endif
