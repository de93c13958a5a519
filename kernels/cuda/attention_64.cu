#include "kernels/cuda/attention.cuh"

ATTENTION_DEFINE(64, 4, 3)
