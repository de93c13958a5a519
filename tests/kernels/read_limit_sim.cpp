/* The kernel for the simulator. */
#include "tests/kernels/read_limit.cu"
