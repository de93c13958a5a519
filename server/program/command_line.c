#include "server/program/command_line.h"

static int open_model(const char *path, struct model **out_model, struct tokenizer **out_tokenizer,
                      struct error *err) {
    struct model *model;
    if (model_open(path, &model, err) != 0)
        return -1;
    if (out_tokenizer != NULL && tokenizer_open(model, out_tokenizer, err) != 0) {
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
