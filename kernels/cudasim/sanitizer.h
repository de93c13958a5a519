/* AddressSanitizer's part in the simulation: nothing in a build without it. */
#ifndef CUDASIM_SANITIZER_H
#define CUDASIM_SANITIZER_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define CUDASIM_ASAN 1
#elif defined(__has_feature)
#define CUDASIM_ASAN __has_feature(address_sanitizer)
#else
#define CUDASIM_ASAN 0
#endif

#if CUDASIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
static inline void __sanitizer_start_switch_fiber(void **, const void *, size_t) {
}
static inline void __sanitizer_finish_switch_fiber(void *, const void **, size_t *) {
}
#endif

#endif
