/* Allocations of the program under test that fail on demand, for tests that fail the first, second,
 * third ... of a call in turn. Linked with failing_allocations_dep (tests/meson.build), which sends
 * malloc, calloc and realloc here. Not for threads. */
#ifndef QUIRE_TESTS_UNIT_FAILING_ALLOCATIONS_H
#define QUIRE_TESTS_UNIT_FAILING_ALLOCATIONS_H

#include <stddef.h>

/* So many more allocations succeed, and none after them; -1: all do. Counts down to 0. */
extern long allocations_left;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *data, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *data, size_t bytes);

#endif
