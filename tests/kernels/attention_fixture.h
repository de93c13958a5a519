/* Steps of rope_store_kv and paged_attention on any backend, against the oracle: scenes of
 * sequences, pools of KV blocks in disorder with NaN in every place that holds no token, and blocks
 * that the window has left NaN too. Ends the test where memory is short. */
#ifndef QUIRE_TESTS_KERNELS_ATTENTION_FIXTURE_H
#define QUIRE_TESTS_KERNELS_ATTENTION_FIXTURE_H

#include "tests/kernels/kernel_fixture.h"

#define ATTENTION_MAX_SEQS 24
#define ATTENTION_MAX_TOKENS 1600

extern struct kernel_fixture attention_fixture;
/* While a test sets it, the backends get no memory in the ops; calls that were refused. */
extern bool attention_memory_is_short;
extern int attention_num_refused;

struct attention_shape {
    int32_t head_dim;
    int32_t num_kv_heads;
    int32_t group; /* query heads per KV head */
    int32_t block_size;
    enum kv_type type; /* of the CPU's cache; a device has the fixture's dtype for the plain ones */
    int32_t window;
    float soft_cap;
    int32_t latent_dim; /* the layout is latent, with one KV head; else 0 */
    int32_t key_pairs;  /* of a quantised type: pairs of the bias that cached keys lack */
    bool has_sinks;
};

/* The last `num_tokens` tokens of a sequence of `length` are what a step computes. */
struct attention_chunk {
    int32_t sequence;
    int32_t length;
    int32_t num_tokens;
};

/* Prefills, decodes and chunks around the borders of blocks (16) and tiles (64); and a few of them.
 */
extern const struct attention_chunk attention_mixed[12], attention_small[3];

/* A set of sequences with all their tokens' q, k, v, before any rotation. */
struct attention_scene {
    struct attention_shape shape;
    int num_seqs;
    int32_t lengths[ATTENTION_MAX_SEQS], longest;
    float *qkv[ATTENTION_MAX_SEQS]; /* [length, row_floats]: q, k and v; or q and latent rows */
    int32_t row_floats, q_floats, out_floats;
    int32_t rotary_dim;
    float *sinks;              /* of the query heads; NULL: none */
    float *rope_table;         /* [longest, rotary_dim]; NULL: nothing rotates */
    struct key_bias *key_bias; /* [num_kv_heads]; NULL: keys are whole */
    struct key_biases turning; /* what these turn by, with rope_columns on the host */
};

/* A KV pool of one backend with the sequences' block tables, and what else the ops need there. */
struct attention_pool {
    struct backend *backend;
    enum dtype dtype; /* of the backend's activations */
    struct kv_cache cache;
    void *rope_table, *sinks;
    struct key_biases key_biases; /* heads NULL: none */
    int32_t max_blocks;
    int32_t *tables;   /* [num_seqs][max_blocks] */
    int32_t nan_block; /* nothing is ever stored in it */
};

/* A step's arrays on the host. */
struct attention_step {
    struct step_inputs inputs;
    int32_t query_start[ATTENTION_MAX_SEQS + 1];
    int32_t context_lens[ATTENTION_MAX_SEQS];
    int32_t positions[ATTENTION_MAX_TOKENS], slots[ATTENTION_MAX_TOKENS];
    int32_t *tables;
    float *qkv;
};

/* Fills in random numbers that depend on the shape and the number of sequences alone. */
void attention_scene_init(struct attention_scene *scene, struct attention_shape shape, int num_seqs,
                          const int32_t *lengths);
void attention_scene_finish(struct attention_scene *scene);

/* Deals blocks in an order that depends on the seed, all but block 0, which nobody may read.
 * The oracle takes what a device rounded in floats, or quantises it likewise. The cache is NaN:
 * what was never stored must not matter. */
void attention_pool_init(struct attention_pool *pool, const struct attention_scene *scene,
                         struct backend *b, uint64_t seed);
void attention_pool_finish(struct attention_pool *pool);

/* Lays out the chunks' tokens one after the other. */
void attention_step_init(struct attention_step *step, const struct attention_scene *scene,
                         const struct attention_pool *pool, int num_chunks,
                         const struct attention_chunk *chunks);
void attention_step_finish(struct attention_step *step);

/* The arguments of the scene's shape, without qkv and out. */
struct attention_args attention_args_of(const struct attention_scene *scene,
                                        const struct attention_pool *pool);

/* Begins the step and stores its tokens. Returns the rows with their rotated queries in the
 * backend's memory; K and V are NaN, for attention is to read the cache. */
void *attention_store(const struct attention_scene *scene, struct attention_pool *pool,
                      struct attention_step *step);

/* One step of these chunks. Results go to the same rows of out[sequence] ([length, out_floats]). */
void attention_run_step(const struct attention_scene *scene, struct attention_pool *pool,
                        int num_chunks, const struct attention_chunk *chunks, float **out);

/* Stores the tokens of a chunk, without their attention. */
void attention_store_chunk(const struct attention_scene *scene, struct attention_pool *pool,
                           struct attention_chunk chunk);

/* Likewise those before the chunks' tokens. */
void attention_store_before(const struct attention_scene *scene, struct attention_pool *pool,
                            int num_chunks, const struct attention_chunk *chunks);

/* out[sequence]: [length, out_floats], guarded. */
void attention_alloc_outputs(const struct attention_scene *scene, float **out);
void attention_free_outputs(const struct attention_scene *scene, float **out);

/* A step of these chunks on a pool of its own. */
void attention_run_chunks(const struct attention_scene *scene, struct backend *b, uint64_t seed,
                          int num_chunks, const struct attention_chunk *chunks, float **out);

/* All sequences at once, all their tokens in one step. */
void attention_run_whole(const struct attention_scene *scene, struct backend *b, uint64_t seed,
                         float **out);

/* How far from the oracle a result may be. A rotation rounded the other way moves a stored K by one
 * unit of the cache's type. */
double attention_tolerance_of(enum kv_type type);

/* On the CPU, queries and weights of an int8 cache are rounded to 8 bits, on some levels those of a
 * bf16 cache to BF16 and those of an f16 cache to fixed point: a little of each element's random
 * numbers remains. */
void attention_assert_near_oracle(const struct backend *b, enum kv_type type, const float *actual,
                                  const float *expected, size_t n, const char *what);

/* To the bit. */
void attention_assert_same(const struct attention_scene *scene, float **a, float **b);

/* The CPU in every way of cutting a batch, with each number of threads; an int8 cache has the same
 * bits on every level. */
void attention_check_scene(struct attention_shape shape, int num_seqs, const int32_t *lengths);

/* The chunks' rows of `out`, one after the other. */
float *attention_gather(const struct attention_scene *scene, int num_chunks,
                        const struct attention_chunk *chunks, float **out, size_t *out_n);

/* One step of these chunks, the tokens before them being in the cache. */
void attention_check(struct attention_shape shape, int num_chunks,
                     const struct attention_chunk *chunks, const char *what);

/* Returns whether the first backend's KV cache takes the type. */
bool attention_is_taken(enum kv_type type);

/* Opens attention_fixture by the arguments of main, for all that the checks of attention compute.
 * max_multiprocessors: of a device, 0 for all. latent_dim: the most, 0 for layouts with V. */
void attention_fixture_open(int argc, char **argv, int32_t max_multiprocessors, int32_t latent_dim);

/* Whether the backends under test cut attention by the shape of a step: a device that is not
 * batch-invariant. */
bool attention_is_cut(void);

#endif
