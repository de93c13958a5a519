/* A folder of its own for tests that read files; what lies in it goes with it. */
#ifndef QUIRE_TESTS_UNIT_TEMPORARY_FILES_H
#define QUIRE_TESTS_UNIT_TEMPORARY_FILES_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct temporary_folder {
    char path[256];
    char file[512]; /* of the last temporary_file call */
};

/* Failures abort: a test cannot continue. */
static inline void temporary_folder_make(struct temporary_folder *folder) {
    const char *parent = getenv("TMPDIR");
    snprintf(folder->path, sizeof(folder->path), "%s/quire-test-XXXXXX",
             parent != NULL ? parent : "/tmp");
    if (mkdtemp(folder->path) == NULL)
        abort();
}

/* The path of an entry, valid until the next call. */
static inline const char *temporary_file(struct temporary_folder *folder, const char *name) {
    snprintf(folder->file, sizeof(folder->file), "%s/%s", folder->path, name);
    return folder->file;
}

static inline const char *temporary_write(struct temporary_folder *folder, const char *name,
                                          const void *data, size_t bytes) {
    const char *path = temporary_file(folder, name);
    FILE *stream = fopen(path, "wb");
    if (stream == NULL || fwrite(data, 1, bytes, stream) != bytes || fclose(stream) != 0)
        abort();
    return path;
}

static inline void temporary_folder_remove(struct temporary_folder *folder) {
    DIR *dir = opendir(folder->path);
    if (dir == NULL)
        abort();
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *path = temporary_file(folder, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            if (unlink(path) != 0)
                rmdir(path);
    }
    closedir(dir);
    rmdir(folder->path);
}

#endif
