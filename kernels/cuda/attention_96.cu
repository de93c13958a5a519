#include "kernels/cuda/attention.cuh"

ATTENTION_DEFINE(96, 4, 3)
