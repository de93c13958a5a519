#include "engine/executor/rank_message.h"

#include "config/base/numbers.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

/* Returns the bytes of a message of the kind; 0: there is none. */
static size_t size_of(enum rank_message_kind kind) {
    static const struct rank_message *const m = NULL;
    const size_t head = offsetof(struct rank_message, start);
    switch (kind) {
    case RANK_START:
        return head + sizeof(m->start);
    case RANK_MEMORY:
        return head + sizeof(m->memory);
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

static bool is_token(int32_t token, int32_t vocab_size) {
    return token >= 0 && token < vocab_size;
}

/* What is requested lies in memory that the process may have written to as well: it bounds
 * nothing. */
static int check_row(const struct sample_row *requested, const struct sample_output *row,
                     int32_t index, int32_t vocab_size, struct error *err) {
    if (!is_token(row->token, vocab_size))
        return error_set(err, ERROR_RESTART, "row %d has token %d of %d", index, row->token,
                         vocab_size);
    if (requested->num_logprobs < 0)
        return 0;
    int32_t wanted = min_int32(requested->num_logprobs, vocab_size), num_top = row->num_top;
    if (num_top != wanted || num_top > SAMPLE_MAX_LOGPROBS)
        return error_set(err, ERROR_RESTART, "row %d has %d top logprobs and wants %d", index,
                         num_top, wanted);
    for (int32_t i = 0; i < num_top; i++)
        if (!is_token(row->top_tokens[i], vocab_size))
            return error_set(err, ERROR_RESTART, "row %d has top token %d of %d", index,
                             row->top_tokens[i], vocab_size);
    return 0;
}

int rank_message_check_done(const struct rank_message *message, const struct batch *batch,
                            const struct step_result *result, int32_t vocab_size,
                            struct error *err) {
    if (message->kind != RANK_DONE)
        return error_set(err, ERROR_RESTART, "a message of kind %d came for a step",
                         (int)message->kind);
    const struct error *failure = &message->done.error;
    if (memchr(failure->message, '\0', sizeof(failure->message)) == NULL)
        return error_set(err, ERROR_RESTART, "the error of a step has no end");
    if (failure->code != ERROR_NONE)
        return 0;
    if (message->done.num_sample_rows != batch->num_sample_rows)
        return error_set(err, ERROR_RESTART, "%d rows came for a step of %d",
                         message->done.num_sample_rows, batch->num_sample_rows);
    for (int32_t i = 0; i < batch->num_sample_rows; i++)
        if (check_row(&batch->sample_rows[i], &result->rows[i], i, vocab_size, err) != 0)
            return -1;
    return 0;
}
