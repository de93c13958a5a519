#include "server/telemetry/kv_events/zmq_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define FILE_NAME "libzmq.so.5"

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define ENTRY(function) {"zmq_" #function, offsetof(struct zmq_library, function##_)},
    ZMQ_LIBRARY_FUNCTIONS(ENTRY)
#undef ENTRY
};

int zmq_library_open(struct zmq_library *out, struct error *err) {
    void *handle = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return error_set(err, ERROR_CONFIG,
                         "ZeroMQ cannot be loaded, which Debian has as libzmq5: %.300s", dlerror());
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *function = dlsym(handle, functions[i].name);
        if (function == NULL)
            return error_set(err, ERROR_CONFIG, FILE_NAME " has no function %s", functions[i].name);
        memcpy((char *)out + functions[i].offset, &function, sizeof(function));
    }
    return 0;
}
