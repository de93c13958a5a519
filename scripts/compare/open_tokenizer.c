#include "scripts/compare/open_tokenizer.h"

#include "models/files/tensor_file.h"
#include "models/config/model.h"
#include "models/tokenizer/tokenizer_spec.h"

#include <sys/stat.h>

static int open_folder(const char *path, struct tokenizer **out, struct error *err) {
    struct tokenizer_spec spec;
    if (tokenizer_spec_read_json(path, &spec, err) != 0)
        return -1;
    int status = tokenizer_create(&spec, out, err);
    tokenizer_spec_finish(&spec);
    return status;
}

static int open_file(const char *path, struct tokenizer **out, struct error *err) {
    struct tensor_file *file;
    if (tensor_file_open(path, &file, err) != 0)
        return -1;
    const struct model model = {.file = file};
    int status = tokenizer_open(&model, out, err);
    tensor_file_close(file);
    return status;
}

int open_tokenizer(const char *path, struct tokenizer **out, struct error *err) {
    struct stat st;
    bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    return is_folder ? open_folder(path, out, err) : open_file(path, out, err);
}
