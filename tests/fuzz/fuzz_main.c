/* Replays files through a fuzz target with any compiler: `fuzz_x FILE_OR_FOLDER...`. libFuzzer
 * has its own main instead. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int replay_file(const char *path) {
    FILE *stream = fopen(path, "rb");
    struct stat st;
    if (stream == NULL || fstat(fileno(stream), &st) != 0) {
        perror(path);
        return -1;
    }
    size_t bytes = (size_t)st.st_size;
    uint8_t *data = malloc(bytes + 1);
    int status = data != NULL && fread(data, 1, bytes, stream) == bytes ? 0 : -1;
    fclose(stream);
    if (status == 0) {
        printf("%s\n", path);
        fflush(stdout);
        LLVMFuzzerTestOneInput(data, bytes);
    }
    free(data);
    return status;
}

static int replay_folder(const char *path, DIR *folder) {
    int status = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char *file = NULL;
        if (entry->d_name[0] == '.')
            continue;
        if (asprintf(&file, "%s/%s", path, entry->d_name) < 0 || replay_file(file) != 0)
            status = -1;
        free(file);
    }
    return status;
}

static int replay(const char *path) {
    DIR *folder = opendir(path);
    if (folder == NULL)
        return replay_file(path);
    int status = replay_folder(path, folder);
    closedir(folder);
    return status;
}

int main(int argc, char **argv) {
    int status = 0;
    for (int i = 1; i < argc; i++)
        if (replay(argv[i]) != 0)
            status = 1;
    return status;
}
