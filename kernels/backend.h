/* The op table: all arithmetic of a forward pass on one device, and that device's memory.
 *
 * A backend belongs to one rank and is called by one thread at a time. Calls enqueue work; only
 * `step_wait` and `synchronize` wait, and an op's results are visible to the host after them. (The
 * CPU backend does the work at once.) Shapes are row major, outermost first, and checked by the
 * caller: an op refuses nothing. When the device itself fails, the first failure is kept, further
 * calls do nothing, and `step_wait` and `synchronize` report it from then on. Activations are
 * `activation_dtype` (float on the CPU, bf16 or f16 on CUDA); logits are always float. A row's
 * result never depends on which other rows are in the call (batch invariance): the CPU backend
 * guarantees this bit for bit, the CUDA backend does when it is opened with `batch_invariant`.
 *
 * Memory is allocated at start: by backend_open, matrix_create, buffer_alloc and host_alloc, and by
 * the first step, which runs before any request (the CPU's threads then size their scratch memory
 * by the model). No later step allocates.
 *
 * `step_begin` passes the arrays of one step; the ops that need token ids, positions, slots or
 * block tables read them from there until the next `step_begin`. Each sampled token also stays on
 * the device, indexed by its sample row in the step, until `sample` is called for that row of a
 * later step: the next step's `embed` finds it there (token_rows).
 *
 * `step_end` closes the step: all that was enqueued since the previous `step_end`, block moves
 * included. `step_wait` waits for the oldest closed step; meanwhile the next step can be enqueued,
 * but not the one after it. So a step's host memory, read or written, belongs to the backend until
 * the step was waited for. Work outside of a step is waited for with `synchronize`.
 *
 * Work on the KV pool behaves as if done in the order of the calls. However, moves (copy_blocks,
 * swap_blocks) may run in parallel with a step whose blocks they do not touch. A step's blocks are
 * those that its block tables name for context_lens tokens. No op reads or writes other blocks, nor
 * any of them after the step's end (a recording may, see recording.h).
 *
 * Implementations: kernels/cpu (fast paths per instruction set, and "cpu-ref", the scalar oracle of
 * every op), and kernels/cuda, a shared module that backend_open opens at run time (module.h). */
#ifndef QUIRE_KERNELS_BACKEND_H
#define QUIRE_KERNELS_BACKEND_H

#include "config/base/error.h"
#include "config/serving_limits.h"
#include "kernels/dtype.h"
#include "kernels/experts.h"
#include "kernels/kv_layout.h"
#include "kernels/packing.h"
#include "kernels/recording.h"
#include "kernels/sampling.h"
#include "kernels/tuning.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend;
struct transport;

/* The backends that compute one model together, each with its share of it, are a group; each is a
 * rank of it, with its own thread. The ops called collective are called by every rank of the group,
 * in the same order and with the same shapes, and wait for the others. Their sums are computed in
 * float (of a norm, on the CPU, in double) and in the order of the ranks, so that each rank has the
 * same bits in every run, unless fast_sums (backend_config) leaves them to NCCL. The first
 * collective op is called before anything is recorded. */
#define BACKEND_MAX_RANKS 8
struct backend_group;

/* Alternatively, a model's layers are divided among the consecutive stages of a pipeline. Each
 * stage is one backend, or a group; all stages have the same number of ranks. Each rank of a stage
 * passes what its layers compute to the rank with the same number in the next stage, while the
 * previous stage computes the next step. */
struct backend_pipeline;

/* Device memory; `data` is a device pointer, aligned to at least 64 bytes. Zeroed by buffer_alloc,
 * without touching the pages if the system can provide zero pages lazily. */
struct buffer {
    void *data;
    size_t bytes;
};

/* A weight matrix [rows, cols] in the layout that the device wants (repacked; quantised codes are
 * kept). Created once at load, then read only. */
struct matrix;

/* Consecutive rows of a matrix as the file stores them: [rows, cols] of dtype, no padding.
 * Several parts stack into one matrix (q, k, v; gate, up) and may differ in dtype. */
struct matrix_part {
    enum dtype dtype;
    int32_t rows;
    const void *data; /* host memory, read during matrix_create only. NULL: matrix_fill provides the
                         rows, all of them before the matrix is used */
    const float *bias; /* [rows] host memory, read during matrix_create only; NULL: none. `linear`
                          adds it to every row of its result; `embed` does not */
};

/* Which ops read a matrix. */
enum matrix_use {
    MATRIX_LINEAR,  /* `linear` and `embed` */
    MATRIX_GROUPED, /* `linear_experts` and `linear_heads` */
};

/* The KV pool: num_blocks consecutive blocks, see kv_layout.h. */
struct kv_cache {
    struct kv_layout layout;
    int32_t num_blocks;
    struct buffer buffer; /* num_blocks * kv_block_bytes(layout) */
};

/* The arrays of one step, in host memory that stays valid and unchanged until the step was waited
 * for. Sequence s owns tokens query_start[s] .. query_start[s+1]-1, which are the LAST of its
 * context_lens[s] tokens. Token ids are < vocab, slots and blocks < those of the KV pool (CHECKed
 * by the batch builder's tests, trusted here).
 *
 * If token_rows[i] >= 0, token i is the one that the previous step sampled in that sample row, and
 * token_ids[i] is ignored. If it is -1, or token_rows is NULL, token i is token_ids[i].
 *
 * logit_rows and sample_rows are what gather_rows and sample will receive, passed here so that a
 * device copies them with the rest; NULL: they come with the op.
 *
 * Layers may be divided into groups, each with its own blocks for the same tokens: an op says of
 * which group its layer is. Groups have slots and tables of their own, one after the other.
 *
 * num_padding rows follow the T tokens when a device replays a recorded step of more rows
 * (recording.h). Each is a token of a separate sequence, and reads and writes no block of the KV
 * pool; what is computed for it is meaningless. */
struct step_inputs {
    int32_t num_tokens;           /* T */
    int32_t num_seqs;             /* S */
    int32_t num_padding;          /* 0 on a backend without recordings */
    int32_t num_sample_rows;      /* R; read if one of the last two is given */
    int32_t num_groups;           /* 0: one */
    int32_t max_blocks_per_seq;   /* row stride of block_tables */
    const int32_t *token_ids;     /* [T] */
    const int32_t *token_rows;    /* [T] or NULL */
    const int32_t *positions;     /* [T] */
    const int32_t *slot_mapping;  /* [num_groups][T] */
    const int32_t *query_start;   /* [S + 1] */
    const int32_t *context_lens;  /* [S] tokens in the cache after this step */
    const int32_t *block_tables;  /* [num_groups][S][max_blocks_per_seq] */
    const int32_t *adapter_slots; /* [S] see choose_adapters; -1: none. NULL: none has any */
    const int32_t *logit_rows;    /* [R] or NULL */
    const struct sample_row *sample_rows; /* [R] or NULL */
};

/* Return those of a group. */
static inline const int32_t *step_slots(const struct step_inputs *step, int32_t group) {
    return step->slot_mapping + (ptrdiff_t)group * step->num_tokens;
}
static inline const int32_t *step_table(const struct step_inputs *step, int32_t group,
                                        int32_t seq) {
    return step->block_tables +
           ((ptrdiff_t)group * step->num_seqs + seq) * step->max_blocks_per_seq;
}

struct embed_args {
    const struct matrix *table; /* [rows, width] */
    void *out; /* [T, width] = scale * row of each token; zeros if the token is not in the table */
    int32_t first_row; /* token whose row is the table's first */
    float scale;
};

/* The first `width` elements of each row are normalised: divided by the root of their mean square
 * plus epsilon, and multiplied by the weight. Row r starts at x + r * row_stride, and its result at
 * the same offset in out. */
struct norm_args {
    const void *x;
    const float *weight; /* [width] device memory */
    const float *bias;   /* likewise, added last; NULL: none. Only with `center` */
    void *out;           /* may equal x */
    int32_t num_rows;
    int32_t row_stride; /* elements, of x and of out; >= width */
    int32_t width;
    int32_t total_width; /* 0; otherwise the op is collective, and this is the number of elements
                            that are normalised together, of which this rank has `width`; there is
                            then no `center` */
    float epsilon;
    bool center;     /* subtract the mean first (LayerNorm) */
    bool accumulate; /* out += the result (a residual after a post-norm); out is not x then */
};

struct linear_args {
    const void *x;               /* [num_rows, cols] */
    const struct matrix *weight; /* [rows, cols] */
    void *out;                   /* [num_rows, rows]; float when float_out, else activation_dtype */
    int32_t num_rows;
    float scale;     /* out = scale * (x W^T) + bias; 1 changes no bit */
    bool accumulate; /* out += the result (the residual) */
    bool float_out;  /* the head: logits in float */
};

/* Products with the parts of a matrix, one for each head, as of each head's own vector. */
struct head_linear_args {
    const void *x;               /* num_tokens * num_heads vectors of cols elements */
    const struct matrix *weight; /* [num_heads * rows, cols], created as one part for each head */
    void *out;                   /* num_tokens * num_heads vectors of rows elements */
    int32_t num_tokens, num_heads;
    int32_t x_stride, out_stride; /* elements from a vector to the next, also of the next token */
};

/* Normalises and rotates q in place, and k while storing it; stores k and v in the step's slots. A
 * row of qkv is [q heads | k heads | v heads] x head_dim. */
struct rope_store_args {
    void *qkv;               /* [T, (num_q_heads + 2 * num_kv_heads) * head_dim] */
    const float *rope_table; /* [max positions][rotary_dim]: cos of the rotary_dim/2 pairs, then
                                sin; NULL: nothing is rotated */
    const float *q_norm, *k_norm; /* [head_dim] device memory: weights of a norm of each head for
                                     itself, before it is rotated (norm_args, no `center`); both
                                     NULL: none */
    float norm_epsilon;
    struct kv_cache *cache;
    int32_t group;
    int32_t layer; /* of the group's blocks */
    int32_t num_q_heads;
    int32_t rotary_dim; /* number of leading elements of each head that rotate; even, <= head_dim */
    bool interleaved;   /* pairs are (2i, 2i+1), as in GGUF files of llama; otherwise (i, i +
                           rotary_dim/2) */
};

/* Stores one row of a latent layout (kv_layout.h) for each token, and completes its queries: both
 * get their rotated elements here. */
struct latent_store_args {
    const void *q; /* [T, num_q_heads, q_dim]: each head's last rotary_dim elements are rotated */
    void *kv;      /* [T, head_dim]: the row; what it holds afterwards is undefined */
    void *queries; /* [T, num_q_heads, head_dim]: the last rotary_dim of each are written */
    const float *rope_table; /* as in rope_store_args */
    struct kv_cache *cache;
    int32_t group;
    int32_t layer; /* of the group's blocks */
    int32_t num_q_heads;
    int32_t q_dim;
    int32_t rotary_dim; /* head_dim - latent_dim */
    bool interleaved;
};

/* Causal attention of every query token over its sequence's cached tokens, through the block
 * tables; decode, prefill and mixed steps are the same call. Query head h reads KV head h /
 * (num_q_heads / num_kv_heads). A cached token's position is its index in the sequence. */
struct attention_args {
    const void *qkv; /* [T, kv_query_row]: q heads, already rotated, then if the layout is not
                        latent what rope_store_args has after them */
    void *out;       /* [T, num_q_heads * kv_value_dim] */
    const struct kv_cache *cache;
    int32_t group;
    int32_t layer; /* of the group's blocks */
    int32_t num_q_heads;
    float scale;
    int32_t window;     /* a token sees itself and the window - 1 before it; 0: all before it */
    float soft_cap;     /* > 0: a scaled score x becomes soft_cap * tanh(x / soft_cap); 0: no cap */
    const float *sinks; /* [num_q_heads] device memory: a score per head that takes part in softmax
                           as a token without a value would (gpt-oss); NULL: none */
    /* Used if the cache's type has scales: each score gains the product of the query with the
     * rotated bias that the stored key lacks. NULL: keys are stored with their bias. */
    const struct key_biases *key_biases;
};

/* silu(x) = x / (1 + exp(-x)); gelu_tanh(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 * (Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016). The clamped one is that of gpt-oss:
 * with gate = min(gate, 7) and up = min(max(up, -7), 7), gate / (1 + exp(-1.702 gate)) * (up + 1).
 */
enum activation { ACTIVATION_SILU, ACTIVATION_GELU_TANH, ACTIVATION_CLAMPED_SWIGLU };
#define CLAMPED_SWIGLU_LIMIT 7.0F
#define CLAMPED_SWIGLU_ALPHA 1.702F

struct act_mul_args {
    const void *gate_up; /* [num_rows, 2 * width]: gate, then up */
    void *out;           /* [num_rows, width] = activation(gate) * up */
    int32_t num_rows;
    int32_t width;
    enum activation activation;
};

/* x = cap * tanh(x / cap), in place. */
struct soft_cap_args {
    float *x; /* [num_rows, width] device memory: logits */
    int32_t num_rows;
    int32_t width;
    float cap; /* > 0 */
};

struct gather_rows_args {
    const void *x;       /* [any, width] */
    const int32_t *rows; /* [num_rows] host memory, valid until the step was waited for */
    void *out;           /* [num_rows, width] */
    int32_t num_rows;
    int32_t width;
};

/* The other way round: row r of x becomes row rows[r] of out, none of which is written twice. */
struct scatter_rows_args {
    const void *x;       /* [num_rows, width] */
    const int32_t *rows; /* [num_rows] host memory, valid until the step was waited for */
    void *out;           /* [any, width] */
    int32_t num_rows;
    int32_t width;
};

/* Consecutive rows of a matrix. */
struct row_span {
    int32_t first_row;
    int32_t num_rows; /* may be 0 */
};

/* Row p of sums += each row of span p, one row after the other, in float and separately per
 * element: a span may be cut anywhere and summed in several calls with the same bits. */
struct add_rows_args {
    const void *x;                /* [any, width] */
    const struct row_span *spans; /* [num_spans] host memory, valid until the step was waited for */
    float *sums;                  /* [num_spans, width] device memory */
    int32_t num_spans;
    int32_t width;
};

/* Collective: out = or += the sum over the ranks of x. `out` is equal on all ranks, before and
 * after. */
struct all_reduce_args {
    const void
        *x;    /* [num_rows, width] of activation_dtype; what it holds afterwards is undefined */
    void *out; /* [num_rows, width]; may equal x */
    int32_t num_rows;
    int32_t width;
    bool accumulate; /* += ; out is not x then */
};

/* Collective: gathers each rank's columns on rank 0, in the order of the ranks. A rank has the same
 * width in every call. */
struct gather_columns_args {
    const float *x; /* [num_rows, width] */
    float *out;     /* [num_rows, sum of the ranks' widths] on rank 0; ignored on others */
    int32_t num_rows;
    int32_t width; /* of this rank */
};

/* Collective: copies the tokens that rank 0 sampled in these sample rows of the step to every rank,
 * for token_rows of the next step. */
struct share_samples_args {
    int32_t first_row;
    int32_t num_sample_rows;
};

/* Hidden states that a stage of a pipeline sends to the next, where the rank with the same number
 * receives the same number of rows, in the order in which they are sent. */
struct stage_rows_args {
    void *x; /* [num_rows, width] of activation_dtype; send_rows: read until it is received */
    int32_t num_rows;
    int32_t width;
};

/* `rows`, `counts`, `biases`, `masks` and `listed` are host memory; `out` and `listed_logprobs` are
 * host memory, filled by the wait for the step. The op may overwrite `logits`. */
struct sample_args {
    float *logits;     /* [num_sample_rows, vocab_size + padding] device memory */
    int32_t first_row; /* index of the first of them among the step's sample rows */
    int32_t num_sample_rows;
    int32_t vocab_size;
    int32_t padding; /* columns after each row's tokens, with any contents: ignored */
    const struct sample_row *rows;
    const struct token_count *counts;
    const struct token_bias *biases;
    const uint32_t *masks;     /* [..][SAMPLE_MASK_WORDS(vocab_size)]; the largest index that a row
                                  names is less than the smallest plus num_sample_rows */
    const int32_t *listed;     /* see sample_row.num_listed; rows may share a range */
    struct sample_output *out; /* [num_sample_rows] */
    float *listed_logprobs;    /* each row has its own range */
};

/* Collective, on two ranks or more: gives the same tokens as gather_columns followed by sample on
 * rank 0. For rows whose token depends only on temperature, top_k, top_p and min_p, only the logits
 * that may be sampled are gathered. On CUDA, where no host waits for a rank's results, these are
 * greedy rows, rows with a top_k that is small enough, and rows with neither top_k nor top_p: with
 * logprobs too, unless tokens are listed. Other rows are gathered whole. */
struct vocab_parallel_sample_args {
    float *share;        /* [num_sample_rows, num_tokens] of this rank; the op may overwrite it */
    int32_t first_token; /* of the vocabulary, after the tokens of the ranks before */
    int32_t num_tokens;
    int32_t num_sample_rows; /* <= max_logit_rows */
    /* [num_sample_rows] the rows of `sample`, on every rank if the group is in one process; CUDA
     * reads them. Host memory, valid until the step was waited for. */
    const struct sample_row *rows;
    /* On rank 0; NULL on others. Its logits (without padding) are not read: they are the memory
     * into which columns are gathered. */
    const struct sample_args *sample;
};

/* Blocks copied within one KV pool (copy-on-write), dst[i] = src[i]. No block is both a source and
 * a destination of the call. */
struct copy_blocks_args {
    struct kv_cache *cache;
    const int32_t *src; /* [num_blocks] host memory, valid until the step was waited for */
    const int32_t *dst; /* [num_blocks] likewise */
    int32_t num_blocks;
};

enum swap_direction { SWAP_OUT, SWAP_IN };

/* Blocks moved between the pool and `host_pool`, which is memory from host_alloc with the pool's
 * layout: block i starts at i * kv_block_bytes. */
struct swap_blocks_args {
    struct kv_cache *cache;
    void *host_pool;
    enum swap_direction direction;
    const int32_t
        *device_blocks;         /* [num_blocks] host memory, valid until the step was waited for */
    const int32_t *host_blocks; /* [num_blocks] likewise */
    int32_t num_blocks;
};

struct backend_ops {
    void (*destroy)(struct backend *b);

    int (*buffer_alloc)(struct backend *b, size_t bytes, struct buffer *out, struct error *err);
    void (*buffer_free)(struct backend *b, struct buffer *buffer); /* accepts a zeroed buffer */
    /* Reads `src` during the call. */
    void (*upload)(struct backend *b, void *dst, const void *src, size_t bytes);
    void (*download)(struct backend *b, void *dst, const void *src, size_t bytes);
    /* Host memory that the device copies to and from at full speed (pinned where that exists). */
    int (*host_alloc)(struct backend *b, size_t bytes, struct buffer *out, struct error *err);
    void (*host_free)(struct backend *b, struct buffer *buffer); /* accepts a zeroed buffer */
    /* Make other memory of the process, whole pages, as good as that of host_alloc, until it is
     * unpinned. */
    int (*host_pin)(struct backend *b, void *memory, size_t bytes, struct error *err);
    void (*host_unpin)(struct backend *b, void *memory);
    void (*memory_info)(struct backend *b, size_t *out_free, size_t *out_total);
    /* Waits until everything enqueued is done; no step may be left to be waited for. Returns 0, or
     * -1 with ERROR_DEVICE when this or anything before failed: the backend can then only be
     * destroyed. */
    int (*synchronize)(struct backend *b, struct error *err);

    /* Returns the device memory of a matrix, of which only the parts' types and rows are read, and
     * whether they have a bias; SIZE_MAX if it is too large, and 0 if the backend cannot hold it.
     */
    size_t (*matrix_bytes)(const struct backend *b, const struct matrix_part *parts, int num_parts,
                           int32_t cols, enum matrix_use use);
    /* cols must be a multiple of every part's block; a dtype or shape the backend cannot hold is an
     * ERROR_MODEL. */
    int (*matrix_create)(struct backend *b, const struct matrix_part *parts, int num_parts,
                         int32_t cols, enum matrix_use use, struct matrix **out, struct error *err);
    /* Fills rows first_row to first_row + num_rows - 1 of a part created without data, in the
     * file's format. Rows are counted over all parts; each is filled in any order, and may be
     * filled again while no step that was not waited for reads it. `data` is host memory, read
     * during the call only. Fails with ERROR_MODEL for a value that the device's
     * type cannot hold, ERROR_DEVICE or ERROR_MEMORY. */
    int (*matrix_fill)(struct backend *b, struct matrix *matrix, int32_t first_row,
                       int32_t num_rows, const void *data, struct error *err);
    void (*matrix_destroy)(struct backend *b, struct matrix *matrix); /* accepts NULL */

    void (*step_begin)(struct backend *b, const struct step_inputs *inputs);
    void (*embed)(struct backend *b, const struct embed_args *args);
    void (*norm)(struct backend *b, const struct norm_args *args);
    void (*linear)(struct backend *b, const struct linear_args *args);
    /* out [num_rows, rows / 2] = activation(gate) * up, where gate | up are the product of the
     * args, each rounded to activation_dtype. out is not x. Returns false, having done nothing,
     * where linear and act_mul are as fast. May be NULL. */
    bool (*linear_gated)(struct backend *b, const struct linear_args *args,
                         enum activation activation);
    void (*rope_store_kv)(struct backend *b, const struct rope_store_args *args);
    /* Of latent layouts. */
    void (*linear_heads)(struct backend *b, const struct head_linear_args *args);
    void (*store_latent)(struct backend *b, const struct latent_store_args *args);
    void (*paged_attention)(struct backend *b, const struct attention_args *args);
    void (*act_mul)(struct backend *b, const struct act_mul_args *args);
    void (*route)(struct backend *b, const struct route_args *args);
    void (*choose_adapters)(struct backend *b, const struct choose_adapters_args *args);
    void (*linear_experts)(struct backend *b, const struct expert_linear_args *args);
    /* Returns false, having done nothing, where linear_experts is as fast. May be NULL. */
    bool (*linear_adapters)(struct backend *b, const struct adapter_linear_args *args);
    void (*combine_experts)(struct backend *b, const struct combine_args *args);
    void (*soft_cap)(struct backend *b, const struct soft_cap_args *args);
    void (*gather_rows)(struct backend *b, const struct gather_rows_args *args);
    void (*scatter_rows)(struct backend *b, const struct scatter_rows_args *args);
    void (*add_rows)(struct backend *b, const struct add_rows_args *args);
    void (*sample)(struct backend *b, const struct sample_args *args);
    void (*all_reduce)(struct backend *b, const struct all_reduce_args *args);
    void (*gather_columns)(struct backend *b, const struct gather_columns_args *args);
    void (*share_samples)(struct backend *b, const struct share_samples_args *args);
    /* NULL: not supported; use gather_columns and sample. */
    void (*sample_vocab_parallel)(struct backend *b, const struct vocab_parallel_sample_args *args);
    /* Both are NULL if a pipeline can have only one stage. The first stage receives nothing, and
     * the last one sends nothing. receive_rows may be called before step_begin. */
    void (*send_rows)(struct backend *b, const struct stage_rows_args *args);
    void (*receive_rows)(struct backend *b, const struct stage_rows_args *args);
    void (*copy_blocks)(struct backend *b, const struct copy_blocks_args *args);
    void (*swap_blocks)(struct backend *b, const struct swap_blocks_args *args);
    void (*step_end)(struct backend *b);
    /* Returns whether step_wait would return at once: the oldest closed step is done, or the device
     * has failed. NULL: calls do the work before they return. */
    bool (*step_is_done)(struct backend *b);
    /* Returns 0 or -1, like synchronize. */
    int (*step_wait)(struct backend *b, struct error *err);
    /* NULL: the device has no recordings and no clock. */
    const struct recording_ops *recording;
    /* NULL: products have nothing to tune. */
    const struct tuning_ops *tuning;
    /* NULL: packed weights can only be in the backend's own memory. */
    const struct packing_ops *packing;
};

/* The paths that ops chose by the shape of their steps, counted at each call since the backend was
 * opened, so that tests can verify that they cover what they intend to. */
struct backend_paths {
    uint64_t shared_prefixes;  /* prefixes that attention read once for several sequences */
    uint64_t split_ranges;     /* CUDA: ranges of attention split among several blocks, one of which
                                  merges */
    int32_t max_sample_ranges; /* CUDA: maximum number of ranges that a sampled row was cut into */
};

/* Every implementation's state starts with this. */
struct backend {
    const struct backend_ops *ops;
    enum dtype activation_dtype;
    uint32_t kv_types;         /* KV_TYPE_BIT of each type that its KV cache supports; never 0 */
    bool has_dedicated_memory; /* the device has its own memory, which is meant to be filled */
    int32_t head_rows_step; /* the logits' product is fastest with a matrix whose number of rows is
                               a multiple of this, padded with zeros; >= 1 */
    size_t workspace_bytes; /* device memory allocated at open for the ops; 0: not counted */
    struct backend_paths paths;
    const char *name;      /* "cpu", "cpu-ref", "cuda", "cuda-sim" */
    char description[128]; /* for people: instruction set, threads; GPU */
    char numerics[256]; /* properties of this machine and build that decide the bits of results. Two
                           backends with equal configuration and equal numerics give equal bits,
                           unless the batch matters too. Complete once tuning has ended */
};

/* The sizes that the ops' workspace must hold, fixed at start, and how to compute. */
struct backend_config {
    /* CPU: compute threads including the caller; CUDA: threads that convert weights, at most 8; 0:
     * one per available core. */
    int num_threads;
    /* Maximum of T and S, and of a step's sample rows (serving_limits_max_sample_rows); on CUDA
     * also the maximum row stride of block_tables (serving_limits_max_blocks), of a call's
     * num_sample_rows, and vocab_size. The numbers of blocks are not read. */
    struct serving_limits limits;
    int32_t head_dim;     /* CUDA: for attention; 0: attention is not used */
    int32_t latent_dim;   /* CUDA: that of the KV layout */
    int32_t num_q_heads;  /* CUDA: maximum, for attention */
    int32_t num_kv_heads; /* CUDA: likewise */
    /* NULL or "auto": the fastest on this machine; otherwise that level with all its functions
     * (ERROR_CONFIG if the machine lacks it). CPU: "portable", "avx2", "avxvnni", "avx512vnni",
     * "avx512bf16", "amx", "neon", "dotprod", "i8mm"; CUDA: those of cuda_levels.c. */
    const char *isa;
    enum dtype activation_dtype; /* CUDA: DTYPE_BF16 or DTYPE_F16. The CPU computes in float; BF16
                                    allows it to round activations to bf16 for products with BF16
                                    weights and with a bf16 KV cache, if that is faster */
    bool batch_invariant;        /* CUDA: results never depend on the batch; the CPU's never do */
    bool fp8_activations; /* CUDA from compute capability 8.9 on: products with weights of fp8, but
                             experts' and the per-head ones of latent attention, round activations
                             to fp8 (E4M3) with a scale for each row. No such weight is a NaN. Other
                             devices refuse it */
    bool fast_sums; /* CUDA without a pipeline: all_reduce by NCCL's own sum, in an order of its
                       choice, which may depend on the number of rows and the run */
    int32_t max_multiprocessors;       /* CUDA: work is split for at most this many; 0: for all */
    struct backend_group *group;       /* outlives the backend; NULL: no group */
    int32_t rank;                      /* in the group */
    struct backend_pipeline *pipeline; /* outlives the backend; NULL: there is one stage */
    int32_t stage;                     /* in the pipeline */
};

/* Creates a group of num_ranks backends of that device, each of which is then opened once with it.
 * On CUDA, rank r is the GPU with number r. When a rank fails or is closed, ops of others that wait
 * for it fail too. Fails with ERROR_CONFIG when that many ranks are not possible, ERROR_DEVICE or
 * ERROR_MEMORY. */
int backend_group_create(const char *device, int32_t num_ranks, struct backend_group **out,
                         struct error *err);
/* The same for backends in several processes: the group's ranks are those of the transport from
 * first_rank on, and this process opens only the transport's own rank, which is one of them.
 * Collective ops are messages of TRANSPORT_SUMS, sent by the rank's thread, with the same bits as
 * within a process. On CUDA only what connects NCCL is such a message, before the first of them,
 * and without a timeout; the rank has the GPU with the number transport->local_rank, or the only
 * one. An op that fails, or takes longer than transport->timeout_ns, is a failure of the backend.
 * What others send is received in memory that backend_open allocates, sized by the limits' tokens,
 * hidden_size, rows of logits and vocab_size. Messages of a failed op may still read and write the
 * memory of its operands and of the group: after a failure the transport is destroyed before these
 * are freed, or the process leaves with _exit(2). The caller owns the transport, which outlives the
 * backend. Fails with ERROR_CONFIG when there are too many ranks, or ERROR_MEMORY. */
int backend_group_create_remote(const char *device, struct transport *transport, int32_t first_rank,
                                int32_t num_ranks, struct backend_group **out, struct error *err);
/* Accepts NULL. The backends were closed. */
void backend_group_destroy(struct backend_group *group);

/* What a rank has sent to others and received since its group was created, without the transport's
 * overhead. On the CPU: zero within a process. Of R ranks that are processes, each sends and
 * receives in an all_reduce of n floats 8 (R-1)/R n bytes: the other ranks' slices and its own sum
 * to all (a slice is a whole number of 64 bytes but for the end of n: with s floats in the rank's
 * own, it is 4 (n - s + (R-1) s)); with 2 ranks, or up to 2048 floats, 4 n: the other ranks'
 * parts whole, in one round. In a norm across ranks: 8 num_rows bytes. In gather_columns,
 * each rank except 0 sends 4 + 4 num_rows width bytes to rank 0; in share_samples, rank 0 sends 4
 * num_sample_rows to each. In sample_vocab_parallel, each rank except 0 sends 24 num_sample_rows up
 * to three times: once if all rows are greedy, a second time if any token is sampled, a third time
 * if any is sampled by the weights of all tokens (top_p alone, or no filter). Rank 0 sends 40
 * num_sample_rows to each once, or twice in the third case. Tokens that top_k, top_p or min_p may
 * keep are 16 bytes each, but at most 4 num_tokens per row, as much as a row that is gathered
 * whole, with 4 more bytes if there are any. On CUDA, also within a process: what NCCL is given, as
 * if each rank sent its part to each other one, and 2 (R-1)/R of a sum with fast_sums; wait_ns is
 * 0. */
struct backend_group_traffic {
    uint64_t bytes_sent, bytes_received;
    int64_t wait_ns; /* from the beginning of messages to their end; within a process, time waiting
                        for others to reach the same op or its end */
};
/* Called by the thread of this rank, which is in this process. */
void backend_group_get_traffic(const struct backend_group *group, int32_t rank,
                               struct backend_group_traffic *out);

/* Creates a pipeline of num_stages stages of num_ranks backends of that device each, each of which
 * is then opened once with it, by any threads: at most BACKEND_MAX_RANKS in all. Fails with
 * ERROR_CONFIG when the device does not support that many, or ERROR_MEMORY. */
int backend_pipeline_create(const char *device, int32_t num_stages, int32_t num_ranks,
                            struct backend_pipeline **out, struct error *err);
/* The same for backends in several processes: rank r of stage s is rank s * num_ranks + r of the
 * transport. Rows are messages of TRANSPORT_STAGES, 4 num_rows width bytes for each rank of every
 * stage except the last. Failures are handled as in a group. On CUDA rows are sent by NCCL, in the
 * type of the activations, and rank r of stage s has the GPU s * num_ranks + r of one process. */
int backend_pipeline_create_remote(const char *device, struct transport *transport,
                                   int32_t num_stages, int32_t num_ranks,
                                   struct backend_pipeline **out, struct error *err);
/* What a rank of a stage has passed on and received, counted in the same way. */
void backend_pipeline_get_traffic(const struct backend_pipeline *pipeline, int32_t stage,
                                  int32_t rank, struct backend_group_traffic *out);
/* Accepts NULL. The backends were closed. */
void backend_pipeline_destroy(struct backend_pipeline *pipeline);

/* name: "cpu", "cpu-ref", "cuda" or "cuda-sim". Returns NULL on failure: ERROR_MEMORY when the
 * workspace does not fit; ERROR_CONFIG or ERROR_DEVICE, with the reason, when this machine has no
 * such device. */
struct backend *backend_open(const char *name, const struct backend_config *config,
                             struct error *err);
/* Accepts NULL. */
void backend_close(struct backend *b);

/* Returns the total bytes of the named device's own memory, by which the size of a step is chosen
 * before backend_open needs it; 0: it has none (the CPU), or does not exist on this machine. */
size_t backend_device_memory(const char *name);

/* Returns `wanted` if the backend's KV cache supports it, otherwise the first supported type. */
enum kv_type backend_kv_type(const struct backend *b, enum kv_type wanted);

/* host_pin and host_unpin of a backend that copies to and from any memory. */
static inline int backend_pins_nothing(struct backend *b, void *memory, size_t bytes,
                                       struct error *err) {
    return 0;
}

static inline void backend_unpins_nothing(struct backend *b, void *memory) {
}

/* Returns the bytes of host memory that can still be allocated without swapping, within the control
 * group's limit; SIZE_MAX when unknown. */
size_t backend_host_free_bytes(void);

#endif
