/* What this machine can do at most, measured now: the scale that benchmark figures are read
 * against. */
#ifndef QUIRE_TESTS_KERNELS_MACHINE_LIMITS_H
#define QUIRE_TESTS_KERNELS_MACHINE_LIMITS_H

struct machine_limits {
    const char *vectors; /* the instructions probed */
    double int8_gmacs;   /* 10^9 multiply-adds per second of bytes into 32 bits; 0: not probed */
    double float_gmacs;
    double read_1m_gbs; /* 10^9 bytes per second read from a buffer of 1 MiB, 64 MiB, 512 MiB */
    double read_64m_gbs;
    double read_512m_gbs;
};

/* One thread's by its own clock, several threads' together by the time of day. */
void machine_limits_probe(int num_threads, struct machine_limits *out);

/* Seconds of processor time of the calling thread: other work on the machine disturbs it less than
 * the time of day. */
double machine_limits_thread_time(void);

#endif
