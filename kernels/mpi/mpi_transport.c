/* The transport over MPI, which is the module libquire-mpi.so. Each channel has its own
 * communicator, so that messages of two channels are never mixed. */
#include "config/base/check.h"
#include "kernels/module.h"

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>

#define TAG 0
#define CHUNK_BYTES ((size_t)1 << 30)

struct transport_request {
    MPI_Request handle; /* MPI_REQUEST_NULL: this place is free */
    int32_t rank;
    bool receives;
    size_t bytes;
};

struct mpi_transport {
    struct transport base;
    MPI_Comm channels[TRANSPORT_NUM_CHANNELS];
    struct transport_request requests[TRANSPORT_NUM_CHANNELS][TRANSPORT_MAX_REQUESTS];
};

struct mpi_text {
    char text[MPI_MAX_ERROR_STRING + 1];
};

static struct mpi_text text_of(int status) {
    struct mpi_text text = {{0}};
    int length;
    MPI_Error_string(status, text.text, &length);
    return text;
}

static int unreachable(int32_t rank, int status, struct error *err) {
    return error_set(err, ERROR_DEVICE, "rank %d cannot be reached: %s", rank,
                     text_of(status).text);
}

/* --- Messages --- */

/* What MPI counts in an int is one element of this type where it has more bytes than that. */
static int create_large_type(size_t bytes, MPI_Datatype *out) {
    MPI_Datatype chunk, types[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int lengths[2] = {(int)(bytes / CHUNK_BYTES), (int)(bytes % CHUNK_BYTES)};
    MPI_Aint places[2] = {0, (MPI_Aint)(bytes / CHUNK_BYTES * CHUNK_BYTES)};
    int status = MPI_Type_contiguous((int)CHUNK_BYTES, MPI_BYTE, &chunk);
    if (status != MPI_SUCCESS)
        return status;
    types[0] = chunk;
    status = MPI_Type_create_struct(2, lengths, places, types, out);
    MPI_Type_free(&chunk);
    return status == MPI_SUCCESS ? MPI_Type_commit(out) : status;
}

struct message {
    MPI_Comm channel;
    void *data;
    int count;
    MPI_Datatype type;
};

static int begin_message(const struct message *message, struct transport_request *request) {
    return request->receives ? MPI_Irecv(message->data, message->count, message->type,
                                         request->rank, TAG, message->channel, &request->handle)
                             : MPI_Isend(message->data, message->count, message->type,
                                         request->rank, TAG, message->channel, &request->handle);
}

static int begin_large(struct message *message, struct transport_request *request) {
    int status = create_large_type(request->bytes, &message->type);
    if (status != MPI_SUCCESS)
        return status;
    message->count = 1;
    status = begin_message(message, request);
    MPI_Type_free(&message->type); /* once the message is done */
    return status;
}

static struct transport_request *free_request(struct mpi_transport *t,
                                              enum transport_channel channel) {
    int i = 0;
    while (i < TRANSPORT_MAX_REQUESTS && t->requests[channel][i].handle != MPI_REQUEST_NULL)
        i++;
    CHECK(i < TRANSPORT_MAX_REQUESTS);
    return &t->requests[channel][i];
}

static struct transport_request *begin(struct transport *base, enum transport_channel channel,
                                       const struct transport_request *wanted, void *data,
                                       struct error *err) {
    struct mpi_transport *t = (struct mpi_transport *)base;
    struct transport_request *request = free_request(t, channel);
    *request = *wanted;
    struct message message = {t->channels[channel], data, 0, MPI_BYTE};
    int status;
    if (request->bytes > INT_MAX) {
        status = begin_large(&message, request);
    } else {
        message.count = (int)request->bytes;
        status = begin_message(&message, request);
    }
    if (status == MPI_SUCCESS)
        return request;
    request->handle = MPI_REQUEST_NULL;
    unreachable(request->rank, status, err);
    return NULL;
}

static struct transport_request *mpi_send(struct transport *t, enum transport_channel channel,
                                          int32_t rank, const void *data, size_t bytes,
                                          struct error *err) {
    const struct transport_request wanted = {MPI_REQUEST_NULL, rank, false, bytes};
    return begin(t, channel, &wanted, (void *)data, err);
}

static struct transport_request *mpi_receive(struct transport *t, enum transport_channel channel,
                                             int32_t rank, void *data, size_t bytes,
                                             struct error *err) {
    const struct transport_request wanted = {MPI_REQUEST_NULL, rank, true, bytes};
    return begin(t, channel, &wanted, data, err);
}

static int mpi_test(struct transport *t, struct transport_request *request, struct error *err) {
    int is_done;
    MPI_Status message;
    int status = MPI_Test(&request->handle, &is_done, &message);
    if (status != MPI_SUCCESS) {
        request->handle = MPI_REQUEST_NULL;
        return unreachable(request->rank, status, err);
    }
    MPI_Count bytes;
    if (is_done && request->receives &&
        (MPI_Get_elements_x(&message, MPI_BYTE, &bytes) != MPI_SUCCESS ||
         bytes != (MPI_Count)request->bytes))
        return error_set(err, ERROR_DEVICE, "rank %d sent another message than the %zu bytes due",
                         request->rank, request->bytes);
    return is_done;
}

/* --- Start and end --- */

static void mpi_destroy(struct transport *base) {
    struct mpi_transport *t = (struct mpi_transport *)base;
    for (int c = 0; c < TRANSPORT_NUM_CHANNELS; c++)
        MPI_Comm_free(&t->channels[c]);
    MPI_Finalize();
    free(t);
}

static const struct transport_ops mpi_ops = {
    .send = mpi_send, .receive = mpi_receive, .test = mpi_test, .destroy = mpi_destroy};

/* Open MPI says on stderr that a connection was lost, through mpirun, and waits in MPI_Test until
 * mpirun has taken it. But mpirun, which ends the other processes then, takes it no more. */
static void forbid_remarks(void) {
    setenv("OMPI_MCA_orte_execute_quiet", "1", 0);
}

static int start_mpi(struct error *err) {
    int is_started, level, status;
    MPI_Initialized(&is_started);
    if (is_started)
        return error_set(err, ERROR_DEVICE, "MPI starts once in a process, and has");
    forbid_remarks();
    status = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (status != MPI_SUCCESS)
        return error_set(err, ERROR_DEVICE, "MPI_Init_thread: %s", text_of(status).text);
    if (level == MPI_THREAD_MULTIPLE)
        return 0;
    MPI_Finalize();
    return error_set(err, ERROR_DEVICE,
                     "this MPI library is not for several threads (MPI_THREAD_MULTIPLE)");
}

static int count_ranks(struct mpi_transport *t) {
    MPI_Comm local;
    int rank, num_ranks, num_local, local_rank;
    int status =
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
    if (status != MPI_SUCCESS)
        return status;
    MPI_Comm_size(local, &num_local);
    MPI_Comm_rank(local, &local_rank);
    MPI_Comm_free(&local);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &num_ranks);
    t->base.rank = rank;
    t->base.num_ranks = num_ranks;
    t->base.num_local = num_local;
    t->base.local_rank = local_rank;
    return MPI_SUCCESS;
}

/* A duplicate has the error handler of what it was made of. */
static int create_channels(struct mpi_transport *t) {
    int status = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int c = 0; c < TRANSPORT_NUM_CHANNELS; c++) {
        if (status == MPI_SUCCESS)
            status = MPI_Comm_dup(MPI_COMM_WORLD, &t->channels[c]);
        for (int i = 0; i < TRANSPORT_MAX_REQUESTS; i++)
            t->requests[c][i].handle = MPI_REQUEST_NULL;
    }
    return status;
}

static int mpi_open(struct transport **out, struct error *err) {
    if (start_mpi(err) != 0)
        return -1;
    struct mpi_transport *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory for messages between ranks");
    t->base.ops = &mpi_ops;
    int status = create_channels(t);
    if (status == MPI_SUCCESS)
        status = count_ranks(t);
    if (status != MPI_SUCCESS) {
        free(t);
        return error_set(err, ERROR_DEVICE, "MPI does not start: %s", text_of(status).text);
    }
    *out = &t->base;
    return 0;
}

__attribute__((visibility("default"))) extern const struct transport_module quire_transport_module;

const struct transport_module quire_transport_module = {.interface = QUIRE_TRANSPORT_INTERFACE,
                                                        .open = mpi_open};
