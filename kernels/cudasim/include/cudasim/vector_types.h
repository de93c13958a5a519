/* CUDA's small vectors, with CUDA's alignment: a misaligned access is reported by UBSan. */
#ifndef CUDASIM_VECTOR_TYPES_H
#define CUDASIM_VECTOR_TYPES_H

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1)
        : x(width), y(height), z(depth) {
    }
};

#define CUDASIM_VECTOR(name, element, alignment)                                                   \
    struct alignas(alignment * sizeof(element)) name##2 {                                          \
        element x, y;                                                                              \
    };                                                                                             \
    struct name##3 {                                                                               \
        element x, y, z;                                                                           \
    };                                                                                             \
    struct alignas(2 * alignment * sizeof(element) > 16 ? 16 : 2 * alignment * sizeof(element))    \
        name##4 {                                                                                  \
        element x, y, z, w;                                                                        \
    };                                                                                             \
    static inline name##2 make_##name##2(element x, element y) {                                   \
        return {x, y};                                                                             \
    }                                                                                              \
    static inline name##3 make_##name##3(element x, element y, element z) {                        \
        return {x, y, z};                                                                          \
    }                                                                                              \
    static inline name##4 make_##name##4(element x, element y, element z, element w) {             \
        return {x, y, z, w};                                                                       \
    }

CUDASIM_VECTOR(char, signed char, 2)
CUDASIM_VECTOR(uchar, unsigned char, 2)
CUDASIM_VECTOR(short, short, 2)
CUDASIM_VECTOR(ushort, unsigned short, 2)
CUDASIM_VECTOR(int, int, 2)
CUDASIM_VECTOR(uint, unsigned, 2)
CUDASIM_VECTOR(longlong, long long, 2)
CUDASIM_VECTOR(ulonglong, unsigned long long, 2)
CUDASIM_VECTOR(float, float, 2)
CUDASIM_VECTOR(double, double, 2)

#endif
