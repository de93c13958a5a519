/* CHECK: an assertion that is never compiled out. It is for our own bugs only; input from outside
 * is answered with a `struct error`, never with CHECK. */
#ifndef QUIRE_CONFIG_BASE_CHECK_H
#define QUIRE_CONFIG_BASE_CHECK_H

_Noreturn void check_failed(const char *file, int line, const char *condition);

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0))                                                     \
            check_failed(__FILE__, __LINE__, #condition);                                          \
    } while (0)

#endif
