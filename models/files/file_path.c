#include "models/files/file_path.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool file_path_is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_path_is_missing(const char *path) {
    return access(path, F_OK) != 0 && errno == ENOENT;
}

int file_path_join(const char *folder, const char *name, char out[static PATH_MAX],
                   struct error *err) {
    size_t length = strlen(folder), name_length = strlen(name);
    while (length > 0 && folder[length - 1] == '/')
        length--;
    if (length + 1 + name_length >= PATH_MAX)
        return error_set(err, ERROR_MODEL, "%.64s...: the path is too long", folder);
    memcpy(out, folder, length);
    out[length] = '/';
    memcpy(out + length + 1, name, name_length + 1);
    return 0;
}
