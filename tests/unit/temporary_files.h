/* A folder of its own for tests that read files; what lies in it goes with it. */
#ifndef QUIRE_TESTS_UNIT_TEMPORARY_FILES_H
#define QUIRE_TESTS_UNIT_TEMPORARY_FILES_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* Makes the folders above the file that are not there. */
static inline const char *temporary_write(struct temporary_folder *folder, const char *name,
                                          const void *data, size_t bytes) {
    const char *path = temporary_file(folder, name);
    for (char *slash = folder->file + strlen(folder->path) + 1;
         (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *stream = fopen(path, "wb");
    if (stream == NULL || fwrite(data, 1, bytes, stream) != bytes || fclose(stream) != 0)
        abort();
    return path;
}

static inline int temporary_entry_remove(const char *path, const struct stat *info, int kind,
                                         struct FTW *walk) {
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static inline void temporary_folder_remove(struct temporary_folder *folder) {
    if (nftw(folder->path, temporary_entry_remove, 8, FTW_DEPTH | FTW_PHYS) != 0)
        abort();
}

#endif
