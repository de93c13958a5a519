#include "engine/executor/rank_agreement.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/transport.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Comparing --- */

#define CONFIG(name, member)                                                                       \
    {                                                                                              \
        name, offsetof(struct executor_config, member),                                            \
            sizeof(((struct executor_config *)0)->member)                                          \
    }

/* What must be the same everywhere. Otherwise the ranks would not compute the same model in the
 * same steps. */
static const struct {
    const char *option;
    size_t offset, bytes;
} same[] = {
    CONFIG("dtype", dtype),
    CONFIG("kv-cache-dtype", kv_type),
    CONFIG("quantization", quantization),
    CONFIG("batch-invariant", batch_invariant),
    CONFIG("fp8-activations", fp8_activations),
    CONFIG("fast-sums", fast_sums),
    CONFIG("enforce-eager", enforce_eager),
    CONFIG("tensor-parallel-size", num_ranks),
    CONFIG("pipeline-parallel-size", num_stages),
    CONFIG("load-mode", load_mode),
    CONFIG("kv-cache-memory-bytes", kv_memory_bytes),
    CONFIG("swap-space", swap_bytes),
    CONFIG("kv-host-bytes", kept_bytes),
    CONFIG("max-num-seqs", limits.max_num_seqs),
    CONFIG("max-num-batched-tokens", limits.max_num_batched_tokens),
    CONFIG("max-model-len", limits.max_model_len),
    CONFIG("speculative-config", limits.num_speculative_tokens),
    CONFIG("max-logprobs", limits.max_logprobs),
    CONFIG("block-size", limits.block_size),
    CONFIG("max-loras", lora.num_slots),
    CONFIG("max-lora-rank", lora.max_rank),
    CONFIG("lora-dtype", lora.dtype),
};

/* Returns the option that differs; NULL: none. */
static const char *find_difference(const struct rank_report *a, const struct rank_report *b) {
    if (strcmp(a->device, b->device) != 0)
        return "device";
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        if (memcmp((const char *)&a->config + same[i].offset,
                   (const char *)&b->config + same[i].offset, same[i].bytes) != 0)
            return same[i].option;
    return NULL;
}

/* Compares the parts of the digests that every rank has read. */
static bool are_alike(const struct weights_digest *a, const struct weights_digest *b) {
    return a->num_pieces == b->num_pieces &&
           memcmp(a->settings, b->settings, sizeof(a->settings)) == 0 &&
           memcmp(a->samples, b->samples, sizeof(a->samples)) == 0;
}

static int refuse_model(int32_t rank, struct error *err) {
    return error_set(err, ERROR_CONFIG, "model: the files of rank %d differ from those of rank 0",
                     rank);
}

static void compare(const struct rank_report *first, const struct rank_report *other, int32_t rank,
                    struct error *err) {
    const char *option = find_difference(first, other);
    if (other->error.code != ERROR_NONE)
        error_set(err, other->error.code, "rank %d: %.480s", rank, other->error.message);
    else if (strcmp(first->build, other->build) != 0)
        error_set(err, ERROR_CONFIG, "rank %d runs another build of quire than rank 0", rank);
    else if (option != NULL)
        error_set(err, ERROR_CONFIG, "%s: rank %d has another value than rank 0", option, rank);
    else if (!are_alike(&first->model, &other->model))
        refuse_model(rank, err);
}

struct rank_decision rank_agreement_decide(const struct rank_report *reports, int32_t num_ranks) {
    struct rank_decision decision = {
        .max_model_len = INT32_MAX, .num_blocks = INT32_MAX, .num_host_blocks = INT32_MAX};
    for (int32_t r = 0; r < num_ranks; r++) {
        const struct rank_report *report = &reports[r];
        if (decision.error.code == ERROR_NONE)
            compare(&reports[0], report, r, &decision.error);
        decision.max_model_len = min_int32(decision.max_model_len, report->max_model_len);
        decision.num_blocks = min_int32(decision.num_blocks, report->num_blocks);
        decision.num_host_blocks = min_int32(decision.num_host_blocks, report->num_host_blocks);
        decision.swap_block_ns = max_int64(decision.swap_block_ns, report->swap_block_ns);
        decision.memory[r] = report->memory;
        memcpy(decision.places[r], report->place, sizeof(report->place));
        memcpy(decision.numerics[r], report->numerics, sizeof(report->numerics));
    }
    return decision;
}

/* --- Sending and receiving --- */

static int tell(struct transport *t, const struct rank_report *report, struct rank_decision *out,
                struct error *err) {
    return transport_send(t, TRANSPORT_STEPS, 0, report, sizeof(*report), err) != 0 ||
                   transport_receive(t, TRANSPORT_STEPS, 0, out, sizeof(*out), err) != 0
               ? -1
               : 0;
}

static int decide(struct transport *t, const struct rank_report *report, struct rank_decision *out,
                  struct error *err) {
    struct rank_report *reports = calloc((size_t)t->num_ranks, sizeof(*reports));
    if (reports == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the reports of %d ranks", t->num_ranks);
    reports[0] = *report;
    int status = 0;
    for (int32_t r = 1; r < t->num_ranks && status == 0; r++)
        status = transport_receive(t, TRANSPORT_STEPS, r, &reports[r], sizeof(*report), err);
    if (status == 0)
        *out = rank_agreement_decide(reports, t->num_ranks);
    free(reports);
    if (status != 0)
        return -1;
    for (int32_t r = 1; r < t->num_ranks; r++)
        if (transport_send(t, TRANSPORT_STEPS, r, out, sizeof(*out), err) != 0)
            return -1;
    return 0;
}

int rank_agreement_reach(struct transport *t, const struct rank_report *report,
                         struct rank_decision *out, struct error *err) {
    CHECK(t->num_ranks <= BACKEND_MAX_RANKS);
    int64_t timeout_ns = t->timeout_ns;
    t->timeout_ns = 0; /* loading may take long, and not equally long on all ranks */
    int status = t->rank == 0 ? decide(t, report, out, err) : tell(t, report, out, err);
    t->timeout_ns = timeout_ns;
    if (status != 0)
        return -1;
    const struct error *why = report->error.code != ERROR_NONE ? &report->error : &out->error;
    return why->code == ERROR_NONE ? 0 : error_set(err, why->code, "%s", why->message);
}

/* --- The model --- */

static int gather_model(struct transport *t, struct weights_digest *model, size_t bytes,
                        struct error *err) {
    uint8_t(*pieces)[CONTENT_HASH_BYTES] = malloc(bytes);
    if (pieces == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the hashes of a model");
    int32_t other = 0; /* the first that differs; the hashes of the others are received anyway */
    int status = 0;
    for (int32_t r = 1; r < t->num_ranks && status == 0; r++) {
        status = transport_receive(t, TRANSPORT_STEPS, r, pieces, bytes, err);
        if (status == 0 && !weights_digest_merge(model, pieces) && other == 0)
            other = r;
    }
    free(pieces);
    return status == 0 && other > 0 ? refuse_model(other, err) : status;
}

int rank_agreement_share_model(struct transport *t, struct weights_digest *model,
                               struct error *err) {
    size_t bytes = model->num_pieces * sizeof(*model->pieces);
    return t->rank == 0 ? gather_model(t, model, bytes, err)
                        : transport_send(t, TRANSPORT_STEPS, 0, model->pieces, bytes, err);
}
