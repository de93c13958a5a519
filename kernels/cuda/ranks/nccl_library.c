#include "kernels/cuda/ranks/nccl_library.h"

#include <dlfcn.h>
#include <string.h>

#define FILE_NAME "libnccl.so.2"

static int find(void *library, const char *name, void *out, struct error *err) {
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        return error_set(err, ERROR_CONFIG, "NCCL (%s) has no function %s", FILE_NAME, name);
    memcpy(out, &symbol, sizeof(symbol)); /* ISO C converts no pointer to a function */
    return 0;
}

int nccl_library_load(struct nccl_library *out, struct error *err) {
    void *library = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return error_set(err, ERROR_CONFIG,
                         "NCCL (%s), which joins several GPUs, is not installed: %s", FILE_NAME,
                         dlerror());
    const struct {
        const char *name;
        void *out;
    } symbols[] = {
        {"ncclGetErrorString", &out->get_error_string},
        {"ncclGetUniqueId", &out->get_unique_id},
        {"ncclCommInitRank", &out->comm_init_rank},
        {"ncclCommDestroy", &out->comm_destroy},
        {"ncclCommAbort", &out->comm_abort},
        {"ncclCommGetAsyncError", &out->comm_get_async_error},
        {"ncclAllReduce", &out->all_reduce},
        {"ncclAllGather", &out->all_gather},
        {"ncclBroadcast", &out->broadcast},
        {"ncclSend", &out->send},
        {"ncclRecv", &out->recv},
        {"ncclGroupStart", &out->group_start},
        {"ncclGroupEnd", &out->group_end},
    };
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
        if (find(library, symbols[i].name, symbols[i].out, err) != 0)
            return -1;
    return 0;
}
