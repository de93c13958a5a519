#include "server/client/client.h"

#include <string.h>
#include <sysexits.h>

int client_exit_status(const struct error *err) {
    switch (err->code) {
    case ERROR_CONFIG:
    case ERROR_MODEL:
        return EX_CONFIG;
    case ERROR_DEVICE:
        return EX_SOFTWARE;
    case ERROR_UNAVAILABLE:
        return EX_UNAVAILABLE;
    case ERROR_INTERRUPTED:
        return EX_TEMPFAIL;
    default:
        return EX_OSERR;
    }
}

int client_find_help(int argc, char *const *argv) {
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return i;
    return -1;
}
