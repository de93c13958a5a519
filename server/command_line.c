#include "server/command_line.h"

#include <sysexits.h>

int command_exit_status(const struct error *err) {
    switch (err->code) {
    case ERROR_CONFIG:
    case ERROR_MODEL:
        return EX_CONFIG;
    case ERROR_DEVICE:
        return EX_SOFTWARE;
    default:
        return EX_OSERR;
    }
}

int command_open_model(const char *path, struct model **out, struct error *err) {
    if (model_open(path, out, err) == 0)
        return 0;
    if (err->code == ERROR_IO)
        err->code = ERROR_MODEL;
    return -1;
}
