#include "engine/executor/rank_message.h"

#include "config/base/numbers.h"
#include "engine/executor/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Returns the bytes of a message of this kind; 0: unknown kind. */
static size_t size_of(enum rank_message_kind kind) {
    static const struct rank_message *const m = NULL;
    const size_t head = offsetof(struct rank_message, start);
    switch (kind) {
    case RANK_START:
        return head + sizeof(m->start);
    case RANK_MEMORY:
        return head + sizeof(m->capacity);
    case RANK_SUBMIT:
    case RANK_SUPPLY:
        return head + sizeof(m->step);
    case RANK_WAIT:
        return head;
    case RANK_PROGRESS:
        return head + sizeof(m->progress);
    case RANK_READY:
        return head + sizeof(m->info);
    case RANK_FAILED:
    case RANK_DONE:
        return head + sizeof(m->done);
    }
    return 0;
}

int rank_message_send(int fd, const struct rank_message *message) {
    ssize_t sent;
    do
        sent = send(fd, message, size_of(message->kind), MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

int rank_message_receive(int fd, struct rank_message *out) {
    ssize_t received;
    do
        received = recv(fd, out, sizeof(*out), 0);
    while (received < 0 && errno == EINTR);
    if (received == 0)
        errno = EPIPE;
    if (received <= 0)
        return -1;
    bool has_kind = received >= (ssize_t)offsetof(struct rank_message, start);
    if (has_kind && (size_t)received == size_of(out->kind))
        return 0;
    errno = EBADMSG;
    return -1;
}

static bool has_end(const char *text, size_t size) {
    return memchr(text, '\0', size) != NULL;
}

int rank_message_check_error(const struct error *reported, struct error *err) {
    if (!has_end(reported->message, sizeof(reported->message)))
        return error_set(err, ERROR_RESTART, "an error has no end");
    if ((unsigned)reported->code > ERROR_RESTART)
        return error_set(err, ERROR_RESTART, "unknown error %d", (int)reported->code);
    return 0;
}

/* Returns whether a value was chosen, if that was left to the ranks, and otherwise is the one
 * requested. */
static bool is_chosen(int32_t value, int32_t requested) {
    return requested > 0 ? value == requested : value > 0;
}

static int check_limits(const struct serving_limits *l, const struct serving_limits *requested,
                        struct error *err) {
    if (!is_chosen(l->max_model_len, requested->max_model_len) ||
        l->block_size != requested->block_size ||
        l->num_speculative_tokens != requested->num_speculative_tokens ||
        l->max_logprobs != requested->max_logprobs || l->vocab_size != requested->vocab_size ||
        l->hidden_size != requested->hidden_size || l->window != requested->window ||
        l->num_groups != requested->num_groups || l->num_full_groups != requested->num_full_groups)
        return error_set(err, ERROR_RESTART, "its limits are not those requested");
    if (!is_chosen(l->max_num_seqs, requested->max_num_seqs) ||
        !is_chosen(l->max_num_batched_tokens, requested->max_num_batched_tokens) ||
        l->max_num_batched_tokens < l->max_num_seqs)
        return error_set(err, ERROR_RESTART, "it has %d sequences and %d tokens a step",
                         l->max_num_seqs, l->max_num_batched_tokens);
    if (l->max_logit_rows <= 0 || l->num_blocks <= 0 || l->num_host_blocks < 0 ||
        l->num_blocks > INT32_MAX / l->block_size)
        return error_set(err, ERROR_RESTART,
                         "it has %d rows of logits, %d blocks and %d on the host",
                         l->max_logit_rows, l->num_blocks, l->num_host_blocks);
    return 0;
}

int rank_message_check_ready(const struct executor_info *info,
                             const struct executor_config *requested, struct error *err) {
    if (!has_end(info->device, sizeof(info->device)) ||
        !has_end(info->description, sizeof(info->description)) ||
        !has_end(info->why_cpu, sizeof(info->why_cpu)) ||
        !has_end(info->numerics, sizeof(info->numerics)))
        return error_set(err, ERROR_RESTART, "a text has no end");
    for (int32_t r = 0; r < BACKEND_MAX_RANKS; r++)
        if (!has_end(info->rank_places[r], sizeof(info->rank_places[r])))
            return error_set(err, ERROR_RESTART, "the place of rank %d has no end", r);
    if ((unsigned)info->activation_dtype >= DTYPE_COUNT || (unsigned)info->kv_type >= NUM_KV_TYPES)
        return error_set(err, ERROR_RESTART, "there is no type %d or %d",
                         (int)info->activation_dtype, (int)info->kv_type);
    const struct lora_shape *lora = &info->lora, *wanted = &requested->lora;
    bool is_type = wanted->dtype == DTYPE_AUTO ? (unsigned)lora->dtype <= DTYPE_BF16
                                               : lora->dtype == wanted->dtype;
    if (lora->num_slots != wanted->num_slots ||
        (wanted->num_slots > 0 && (lora->max_rank != wanted->max_rank || !is_type)))
        return error_set(err, ERROR_RESTART, "it has %d adapters of rank %d and type %d",
                         lora->num_slots, lora->max_rank, (int)lora->dtype);
    if (info->num_ranks < 1 || info->num_ranks > BACKEND_MAX_RANKS ||
        info->num_stages != max_int32(requested->num_stages, 1) || info->swap_block_ns < 0)
        return error_set(err, ERROR_RESTART,
                         "it has %d ranks in %d stages, and moves a block in %lld ns",
                         info->num_ranks, info->num_stages, (long long)info->swap_block_ns);
    for (int32_t i = 0; i < HOST_POOLS_PER_RANK * BACKEND_MAX_RANKS; i++)
        if (info->limits.num_host_blocks > 0 &&
            info->pool_block_bytes[i] >
                info->memory.swap_bytes / (size_t)info->limits.num_host_blocks)
            return error_set(err, ERROR_RESTART, "a block of pool %d has %zu bytes", i,
                             info->pool_block_bytes[i]);
    return check_limits(&info->limits, &requested->limits, err);
}

static bool is_token(int32_t token, int32_t vocab_size) {
    return token >= 0 && token < vocab_size;
}

/* Checks the list that the op has ranked: see sample_output.num_top. */
static int check_ranked(const struct sample_row *requested, const float *listed, int32_t index,
                        int32_t vocab_size, struct error *err) {
    for (int32_t i = 0; i < requested->num_ranked; i++) {
        struct top_logprob top;
        memcpy(&top, (const char *)listed + (size_t)i * sizeof(top), sizeof(top));
        if (!is_token(top.token, vocab_size))
            return error_set(err, ERROR_RESTART, "row %d has ranked token %d of %d", index,
                             top.token, vocab_size);
    }
    return 0;
}

static int check_row(const struct sample_row *requested, const struct sample_output *row,
                     const float *listed, int32_t index, int32_t vocab_size, struct error *err) {
    if (!is_token(row->token, vocab_size))
        return error_set(err, ERROR_RESTART, "row %d has token %d of %d", index, row->token,
                         vocab_size);
    if (requested->target == SAMPLE_NO_TARGET && requested->settings.mirostat != 0 &&
        requested->settings.temperature > 0 && !isfinite(row->mirostat_mu))
        return error_set(err, ERROR_RESTART, "row %d has no mu for the next token", index);
    if (requested->num_logprobs < 0)
        return 0;
    int32_t wanted = min_int32(requested->num_logprobs, vocab_size), num_top = row->num_top;
    if (requested->num_ranked > 0 && num_top == requested->num_ranked)
        return check_ranked(requested, listed + requested->first_listed_logprob, index, vocab_size,
                            err);
    if (num_top != wanted)
        return error_set(err, ERROR_RESTART, "row %d has %d top logprobs and wants %d", index,
                         num_top, wanted);
    for (int32_t i = 0; i < num_top; i++)
        if (!is_token(row->top_tokens[i], vocab_size))
            return error_set(err, ERROR_RESTART, "row %d has top token %d of %d", index,
                             row->top_tokens[i], vocab_size);
    return 0;
}

static int check_drafts(const struct batch *batch, const int32_t *drafts, int32_t vocab_size,
                        struct error *err) {
    int32_t num_drafts = 0;
    for (int32_t i = 0; i < batch->num_draft_requests; i++)
        num_drafts += batch->draft_requests[i].num_drafts;
    for (int32_t i = 0; i < num_drafts; i++)
        if (!is_token(drafts[i], vocab_size))
            return error_set(err, ERROR_RESTART, "draft %d is token %d of %d", i, drafts[i],
                             vocab_size);
    return 0;
}

int rank_message_check_done(const struct rank_message *message, const struct batch *batch,
                            const struct step_result *result, int32_t vocab_size,
                            struct error *err) {
    if (message->kind != RANK_DONE)
        return error_set(err, ERROR_RESTART, "a message of kind %d came for a step",
                         (int)message->kind);
    if (rank_message_check_error(&message->done.error, err) != 0)
        return -1;
    if (message->done.error.code != ERROR_NONE)
        return 0;
    if (message->done.num_ranks < 0 || message->done.num_ranks > BACKEND_MAX_RANKS)
        return error_set(err, ERROR_RESTART, "it has %d ranks", message->done.num_ranks);
    if (message->done.num_sample_rows != batch->num_sample_rows)
        return error_set(err, ERROR_RESTART, "%d rows came for a step of %d",
                         message->done.num_sample_rows, batch->num_sample_rows);
    for (int32_t i = 0; i < batch->num_sample_rows; i++)
        if (check_row(&batch->sample_rows[i], &result->rows[i], result->listed_logprobs, i,
                      vocab_size, err) != 0)
            return -1;
    return check_drafts(batch, result->drafts, vocab_size, err);
}

/* --- The memory of steps --- */

/* Missing in the headers of some C libraries; in the kernel since 5.1. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int create_file(const char *name, int min_fd) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, min_fd);
    close(fd);
    return high;
}

int step_files_create(struct step_files *out, int min_fd, struct error *err) {
    *out = (struct step_files){create_file("quire-batches", min_fd), -1};
    if (out->batches >= 0)
        out->results = create_file("quire-results", min_fd);
    if (out->results >= 0)
        return 0;
    error_set(err, ERROR_IO, "memory of the steps: %s", strerror(errno));
    step_files_close(out);
    return -1;
}

void step_files_close(struct step_files *files) {
    if (files->batches >= 0)
        close(files->batches);
    if (files->results >= 0)
        close(files->results);
    *files = (struct step_files){-1, -1};
}

/* Returns -1 when the steps do not fit into memory. */
static int measure(struct step_mapping *mapping, const struct batch_capacity *capacity) {
    size_t total = step_memory_bytes(capacity);
    if (total > SIZE_MAX / (2 * EXECUTOR_MAX_STEPS))
        return -1;
    mapping->batch_bytes = step_result_offset(capacity);
    size_t results = total - mapping->batch_bytes;
    mapping->result_bytes =
        (results + STEP_PART_ALIGNMENT - 1) / STEP_PART_ALIGNMENT * STEP_PART_ALIGNMENT;
    return 0;
}

static size_t mapped_bytes(const struct step_mapping *mapping) {
    return EXECUTOR_MAX_STEPS * (mapping->batch_bytes + mapping->result_bytes);
}

static int map_part(char *address, size_t bytes, int protection, int fd, size_t offset) {
    void *mapped = mmap(address, bytes, protection, MAP_SHARED | MAP_FIXED, fd, (off_t)offset);
    return mapped == MAP_FAILED ? -1 : 0;
}

static int map_steps(struct step_mapping *mapping, const struct step_files *files,
                     int batch_protection) {
    void *memory = mmap(NULL, mapped_bytes(mapping), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -1;
    mapping->memory = memory;
    for (int32_t i = 0; i < EXECUTOR_MAX_STEPS; i++) {
        size_t batch_bytes = mapping->batch_bytes, result_bytes = mapping->result_bytes;
        char *step = step_mapping_step(mapping, i);
        if (map_part(step, batch_bytes, batch_protection, files->batches,
                     (size_t)i * batch_bytes) != 0 ||
            map_part(step + batch_bytes, result_bytes, PROT_READ | PROT_WRITE, files->results,
                     (size_t)i * result_bytes) != 0) {
            step_mapping_finish(mapping);
            return -1;
        }
    }
    return 0;
}

/* An older kernel has no seal that does not affect existing mappings: the rank process then maps
 * the batches read-only by itself. */
static int seal(const struct step_files *files) {
    const int size = F_SEAL_SHRINK | F_SEAL_GROW;
    if (fcntl(files->results, F_ADD_SEALS, size | F_SEAL_SEAL) != 0)
        return -1;
    if (fcntl(files->batches, F_ADD_SEALS, size | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0)
        return 0;
    return errno == EINVAL ? fcntl(files->batches, F_ADD_SEALS, size | F_SEAL_SEAL) : -1;
}

int step_mapping_create(struct step_mapping *mapping, const struct batch_capacity *capacity,
                        const struct step_files *files) {
    *mapping = (struct step_mapping){0};
    if (measure(mapping, capacity) != 0 ||
        ftruncate(files->batches, (off_t)(EXECUTOR_MAX_STEPS * mapping->batch_bytes)) != 0 ||
        ftruncate(files->results, (off_t)(EXECUTOR_MAX_STEPS * mapping->result_bytes)) != 0 ||
        map_steps(mapping, files, PROT_READ | PROT_WRITE) != 0)
        return -1;
    if (seal(files) == 0)
        return 0;
    step_mapping_finish(mapping);
    return -1;
}

int step_mapping_open(struct step_mapping *mapping, const struct batch_capacity *capacity,
                      const struct step_files *files) {
    *mapping = (struct step_mapping){0};
    return measure(mapping, capacity) != 0 ? -1 : map_steps(mapping, files, PROT_READ);
}

void step_mapping_finish(struct step_mapping *mapping) {
    if (mapping->memory != NULL)
        munmap(mapping->memory, mapped_bytes(mapping));
    *mapping = (struct step_mapping){0};
}

void *step_mapping_step(const struct step_mapping *mapping, int32_t step) {
    return mapping->memory + (size_t)step * (mapping->batch_bytes + mapping->result_bytes);
}

int32_t step_mapping_find(const struct step_mapping *mapping, const void *address) {
    size_t offset = (size_t)((const char *)address - mapping->memory);
    return (int32_t)(offset / (mapping->batch_bytes + mapping->result_bytes));
}
