#include "server/program/command_line.h"

/* A file that cannot be read is as bad as a broken one. */
static int refuse(struct error *err) {
    if (err->code == ERROR_IO)
        err->code = ERROR_MODEL;
    return -1;
}

int command_open_tokenizer(const struct model *model, struct tokenizer **out, struct error *err) {
    return tokenizer_open(model, out, err) == 0 ? 0 : refuse(err);
}

int command_open_model(const char *path, struct model **out_model, struct tokenizer **out_tokenizer,
                       struct error *err) {
    struct model *model;
    if (model_open(path, &model, err) != 0)
        return refuse(err);
    if (out_tokenizer != NULL && command_open_tokenizer(model, out_tokenizer, err) != 0) {
        model_close(model);
        return -1;
    }
    *out_model = model;
    return 0;
}
