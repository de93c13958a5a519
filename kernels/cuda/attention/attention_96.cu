#include "kernels/cuda/attention/attention.cuh"

ATTENTION_DEFINE(96, 4, 3)
