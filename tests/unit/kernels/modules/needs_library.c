int other_library(void);
int needs_library(void);

int needs_library(void) {
    return other_library();
}
