#include "server/command_line.h"

#include <string.h>
#include <sysexits.h>

int command_exit_status(const struct error *err) {
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

bool command_wants_help(int argc, char *const *argv) {
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static int open_model(const char *path, struct model **out_model, struct tokenizer **out_tokenizer,
                      struct error *err) {
    struct model *model;
    if (model_open(path, &model, err) != 0)
        return -1;
    if (tokenizer_open(model, out_tokenizer, err) != 0) {
        model_close(model);
        return -1;
    }
    *out_model = model;
    return 0;
}

int command_open_model(const char *path, struct model **out_model, struct tokenizer **out_tokenizer,
                       struct error *err) {
    if (open_model(path, out_model, out_tokenizer, err) == 0)
        return 0;
    if (err->code == ERROR_IO)
        err->code = ERROR_MODEL;
    return -1;
}
