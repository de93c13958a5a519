/* A library that is no module; and, under another name than its file's, one that is missing. */
int other_library(void);

int other_library(void) {
    return 1;
}
