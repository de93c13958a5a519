#include "kernels/cuda/attention.cuh"

ATTENTION_DEFINE(128, 4, 2)
