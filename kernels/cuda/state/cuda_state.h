/* Private to kernels/cuda: state of the CUDA backend, and its ops by file.
 *
 * Host code is C and calls the CUDA runtime; kernels are in .cu files, each with a header
 * NAME_launch.h of plain C launchers `cudaError_t launch_NAME(...)` that enqueue on a stream and
 * return cudaGetLastError(). One stream carries everything but block moves (cuda_streams.h), so ops
 * are ordered as they are called.
 *
 * A failed call is kept in `failure` with file, line and operation (cuda_check.h). Every op begins
 * with CUDA_OK(b) or goes through CUDA_TRY, and does nothing after a failure. */
#ifndef QUIRE_KERNELS_CUDA_STATE_CUDA_STATE_H
#define QUIRE_KERNELS_CUDA_STATE_CUDA_STATE_H

#include "kernels/backend.h"
#include "kernels/cuda/state/cuda_levels.h"

#include <cuda_runtime_api.h>

struct cuda_comm;            /* cuda_group.h: this rank's end of its group */
struct cuda_streams;         /* cuda_streams.c: that of block moves, and what orders the two */
struct cuda_staging;         /* cuda_staging.h: pinned memory between host arrays and the device */
struct cuda_gemm;            /* cuda_gemm.c: cuBLASLt handle, workspace, chosen algorithms */
struct cuda_attention;       /* cuda_attention.c: plan, partial results */
struct cuda_packed;          /* cuda_packed.h: the step's arrays on their way */
struct cuda_tuning;          /* cuda_tuning.c */
struct cuda_sampler;         /* cuda_sample.c: edited logits, device copies of rows and results */
struct cuda_sample_parallel; /* cuda_sample_parallel.c: what ranks tell each other of rows */
struct recording;            /* cuda_record.c */
struct thread_pool;          /* thread_pool.h: of the host */

#define CUDA_LIST_LENGTH 4096
#define CUDA_HEAD_ROWS_STEP 8 /* cuBLASLt loads 16 bytes of a row at once only then */

/* The arrays of the step on the device, each at a fixed place for all step sizes, so that what was
 * recorded for one step can read those of another. */
struct cuda_step {
    struct buffer memory; /* of all of them at their largest */
    struct step_inputs host;
    int32_t num_tokens;             /* T, padding included; 0: no step is begun */
    uint64_t number;                /* of steps begun; 0: none yet */
    int32_t *token_ids;             /* [T] */
    int32_t *token_rows;            /* [T] */
    int32_t *positions;             /* [T] */
    int32_t *slot_mapping;          /* [groups][largest T] */
    int32_t *sequences;             /* [T] of the tokens; for latent layouts */
    int32_t *adapter_slots;         /* [T] -1 for padding; of steps with adapters */
    int32_t *block_tables;          /* [groups][largest S][table_stride], without padding */
    int32_t *logit_rows;            /* [host.num_sample_rows] */
    struct sample_row *sample_rows; /* likewise */
    int32_t *list;                  /* [CUDA_LIST_LENGTH] input of one op: rows, spans */
    int32_t *moved_pairs; /* [CUDA_LIST_LENGTH] of copy_blocks: sources, then destinations */
    int32_t table_stride;
    int32_t *known_tables;       /* host: block_tables after all enqueued work; -1: unknown */
    int32_t *known_context_lens; /* host: of the step begun last */
    bool is_recorded;            /* begun within the recording */
    bool has_wide_tiles;         /* one of its attention plans has wide tiles */
    struct buffer
        sampled_tokens; /* int32_t [serving_limits_max_sample_rows], written by `sample`, which
                           follows `embed` in a step: until then those of the previous step */
};

/* Of a recording. */
struct cuda_graph {
    struct cuda_graph *next;
    cudaGraph_t source;          /* the graph that exec was made of; their nodes correspond */
    cudaGraphExec_t exec;        /* NULL: none, or destroyed */
    cudaGraphNode_t *wide_tiles; /* [num_wide_tiles] the kernels that do attention's */
    int num_wide_tiles;
    bool are_left_out; /* they are */
};

struct cuda_backend {
    struct backend base;
    struct backend_config config;
    int device;                     /* its number */
    const struct cuda_level *level; /* what kernels it gets */
    struct cuda_comm *comm;         /* NULL: the backend is alone */
    cudaStream_t stream;            /* the compute stream */
    int num_multiprocessors;        /* that work is split for */
    size_t max_shared_bytes;        /* of a block, opted in */
    bool scales_fp8_rows; /* cuBLASLt multiplies E4M3 with a scale for each row of both sides */
    struct error failure; /* code ERROR_NONE: none yet */
    struct cuda_streams *streams;
    struct cuda_step step;
    struct cuda_staging *staging;
    struct cuda_gemm *gemm;
    struct cuda_attention *attention;
    struct cuda_sampler *sampler;
    struct cuda_sample_parallel *sample_parallel; /* NULL: the backend is alone */
    struct recording *recording;                  /* in progress; NULL: ops run */
    struct cuda_tuning *tuning;                   /* in progress; NULL: nothing is timed */
    struct cuda_graph *captured;                  /* graph of the recording in progress */
    struct cuda_graph *graphs;                    /* that live */
    struct thread_pool *converters;               /* of weights */
};

/* Returns whether activations are bf16, and not f16. */
static inline bool cuda_is_bf16(const struct cuda_backend *b) {
    return b->base.activation_dtype == DTYPE_BF16;
}

/* Parts: created in this order at open with all the memory they will ever need, destroyed in
 * reverse; a destroyer accepts a part that was never created. */
int cuda_streams_create(struct cuda_backend *b, struct error *err);
void cuda_streams_destroy(struct cuda_backend *b);
int cuda_step_create(struct cuda_backend *b, struct error *err);
void cuda_step_destroy(struct cuda_backend *b);
int cuda_attention_create(struct cuda_backend *b, struct error *err);
void cuda_attention_destroy(struct cuda_backend *b);
/* step_bytes: of the largest step's arrays. */
int cuda_staging_create(struct cuda_backend *b, size_t step_bytes, struct error *err);
void cuda_staging_destroy(struct cuda_backend *b);
int cuda_gemm_create(struct cuda_backend *b, struct error *err);
void cuda_gemm_destroy(struct cuda_backend *b);
int cuda_sampler_create(struct cuda_backend *b, struct error *err);
void cuda_sampler_destroy(struct cuda_backend *b);
int cuda_sample_parallel_create(struct cuda_backend *b, struct error *err);
void cuda_sample_parallel_destroy(struct cuda_backend *b);

/* cuda_state.c */
/* Every op begins with it: from here on the thread's CUDA calls go to the backend's device. */
struct cuda_backend *cuda_state_of(struct backend *b);
/* Return the current step's slots and tables of a group. */
const int32_t *cuda_step_slots(const struct cuda_backend *b, int32_t group);
const int32_t *cuda_step_tables(const struct cuda_backend *b, int32_t group);

/* cuda_graph.c */
/* Removes it from b->graphs, which contains every live graph. Returns false when the device has
 * failed. */
bool cuda_graph_destroy(struct cuda_backend *b, struct cuda_graph *graph);
/* Notes in b->captured that the kernel enqueued last processes attention's wide tiles. */
void cuda_graph_add_wide_tiles(struct cuda_backend *b);
/* Before a launch: disables these kernels if the current step has no wide tiles. */
void cuda_graph_choose_wide_tiles(struct cuda_backend *b, struct cuda_graph *graph);

/* cuda_backend.c */
struct backend *cuda_backend_open(const struct backend_config *config, struct error *err);
size_t cuda_device_memory(void);

/* cuda_memory.c */
int cuda_buffer_alloc(struct backend *b, size_t bytes, struct buffer *out, struct error *err);
void cuda_buffer_free(struct backend *b, struct buffer *buffer);
int cuda_host_alloc(struct backend *b, size_t bytes, struct buffer *out, struct error *err);
void cuda_host_free(struct backend *b, struct buffer *buffer);
int cuda_host_pin(struct backend *b, void *memory, size_t bytes, struct error *err);
void cuda_host_unpin(struct backend *b, void *memory);
void cuda_memory_info(struct backend *b, size_t *out_free, size_t *out_total);

/* cuda_step.c */
void cuda_step_begin(struct backend *b, const struct step_inputs *inputs);
/* Returns the bytes of pinned memory for the largest step's arrays. */
size_t cuda_step_packed_bytes(const struct cuda_backend *b);
/* Returns the device copy of these host arrays; NULL: they did not come with the step. */
const int32_t *cuda_step_logit_rows(const struct cuda_backend *b, const int32_t *rows);
const struct sample_row *cuda_step_sample_rows(const struct cuda_backend *b,
                                               const struct sample_row *rows);
/* Forgets the current step and its attention plans. */
void cuda_step_forget(struct cuda_backend *b);

/* cuda_staging.c */
void cuda_upload(struct backend *b, void *dst, const void *src, size_t bytes);
void cuda_download(struct backend *b, void *dst, const void *src, size_t bytes);

/* cuda_ops.c */
void cuda_norm(struct backend *b, const struct norm_args *args);
void cuda_rope_store_kv(struct backend *b, const struct rope_store_args *args);
void cuda_store_latent(struct backend *b, const struct latent_store_args *args);
void cuda_act_mul(struct backend *b, const struct act_mul_args *args);
void cuda_soft_cap(struct backend *b, const struct soft_cap_args *args);
void cuda_gather_rows(struct backend *b, const struct gather_rows_args *args);
void cuda_scatter_rows(struct backend *b, const struct scatter_rows_args *args);
void cuda_add_rows(struct backend *b, const struct add_rows_args *args);

/* cuda_moves.c */
void cuda_copy_blocks(struct backend *b, const struct copy_blocks_args *args);
void cuda_swap_blocks(struct backend *b, const struct swap_blocks_args *args);

/* cuda_matrix.c, cuda_gemm.c: weights are kept as activation_dtype, row major */
int cuda_converters_create(struct cuda_backend *b, struct error *err);
size_t cuda_matrix_bytes(const struct backend *b, const struct matrix_part *parts, int num_parts,
                         int32_t cols, enum matrix_use use);
int cuda_matrix_create(struct backend *b, const struct matrix_part *parts, int num_parts,
                       int32_t cols, enum matrix_use use, struct matrix **out, struct error *err);
int cuda_matrix_fill(struct backend *b, struct matrix *matrix, int32_t first_row, int32_t num_rows,
                     const void *data, struct error *err);
void cuda_matrix_destroy(struct backend *b, struct matrix *matrix);
void cuda_embed(struct backend *b, const struct embed_args *args);
void cuda_linear(struct backend *b, const struct linear_args *args);
bool cuda_linear_gated(struct backend *b, const struct linear_args *args,
                       enum activation activation);

/* cuda_attention.c */
/* Returns the maximum number of arrays and words of the plans of a step of that many tokens and
 * sequences. */
void cuda_attention_plan_size(const struct cuda_backend *b, int32_t num_tokens, int32_t num_seqs,
                              size_t *out_arrays, size_t *out_words);
/* Adds the plans of the current step, for the kinds of layers that asked for one in the previous
 * step. */
void cuda_attention_pack_plans(struct cuda_backend *b, struct cuda_packed *packed);
void cuda_paged_attention(struct backend *b, const struct attention_args *args);
/* The places of plans that a recording reads, as bits. They are taken when it ends, and keep their
 * shapes until it is forgotten. Before a replay, those that the step lacks are made. */
uint32_t cuda_attention_take_recorded(struct cuda_backend *b);
void cuda_attention_before_replay(struct cuda_backend *b, uint32_t recorded);
void cuda_attention_forget_recorded(struct cuda_backend *b, uint32_t recorded);

/* cuda_experts.c */
void cuda_route(struct backend *b, const struct route_args *args);
void cuda_choose_adapters(struct backend *b, const struct choose_adapters_args *args);
void cuda_linear_experts(struct backend *b, const struct expert_linear_args *args);
void cuda_linear_heads(struct backend *b, const struct head_linear_args *args);
void cuda_combine_experts(struct backend *b, const struct combine_args *args);

/* cuda_record.c */
extern const struct recording_ops cuda_recording_ops;

/* cuda_sample.c */
void cuda_sample(struct backend *b, const struct sample_args *args);
struct sample_parts;
/* Where ranks have told of reported rows, or NULL: these are reported on by what they have told. */
void cuda_sample_by_parts(struct cuda_backend *b, const struct sample_args *args,
                          const struct sample_parts *parts);
/* Returns the device copy of these host rows; they are sent there if they did not come with the
 * step. */
const struct sample_row *cuda_sampler_rows(struct cuda_backend *b, const struct sample_row *rows,
                                           int32_t num_rows);

/* cuda_sample_parallel.c */
void cuda_sample_vocab_parallel(struct backend *b, const struct vocab_parallel_sample_args *args);

#endif
