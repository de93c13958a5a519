/* The grouped product with packed weights: the narrow product of packed_product.cuh, whose rows of
 * x are those of an expert's choices. */
#include "kernels/cuda/experts/expert_tiles.cuh"
#include "kernels/cuda/packed/packed_product.cuh"

namespace {

template <class T>
__device__ __forceinline__ void store_choice(const expert_product_launch &a, int32_t expert,
                                             int64_t choice, int32_t row, float sum) {
    T *out = static_cast<T *>(a.out) + choice * a.out_stride + row;
    if (a.bias != nullptr)
        sum += a.bias[(int64_t)expert * a.rows + row];
    *out = from_float<T>(a.accumulate ? to_float(*out) + sum : sum);
}

/* Tiles of rows of W for four of rows of x: two where there are registers for them. */
template <int F>
constexpr int tall_m =
    form_of<F>::has_min || form_of<F>::group == 16 || form_of<F>::low_bits == 8 ? 1 : 2;

template <int F, class T, int M, int N>
__global__ void __launch_bounds__(num_threads, narrow_blocks(M *N))
    packed_expert_kernel(const __grid_constant__ packed_planes planes,
                         const __grid_constant__ expert_product_launch a) {
    __shared__ partial_sums<M, N> partial;
    const choice_range range = find_tile<8 * N>(a, (int32_t)blockIdx.x);
    if (range.expert < 0)
        return;
    const T *rows_of_x[N]; /* past the last choice it again */
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int32_t choice = min(range.first + n * 8 + lane_of() / 4, range.end - 1);
        rows_of_x[n] = static_cast<const T *>(a.x) +
                       (int64_t)(choice_at(a, choice) / a.row_choices) * a.x_stride;
    }
    const int first_row = (int)blockIdx.y * 16 * M;
    multiply_narrow_tile<F, T, M, N>({planes, range.expert * a.rows, a.rows, a.cols, 8}, first_row,
                                     rows_of_x, partial);
    /* Neighbouring threads store neighbouring rows. */
    for (int i = (int)threadIdx.x; i < M * N * 16 * 8; i += num_threads) {
        const int row = i % (16 * M), column = i / (16 * M);
        const int32_t choice = range.first + column;
        if (first_row + row < a.rows && choice < range.end)
            store_choice<T>(a, range.expert, choice_at(a, choice), first_row + row,
                            sum_of(partial, row, column));
    }
}

template <int F, class T, int M, int N>
void multiply_by(cudaStream_t stream, const packed_planes &planes, const expert_product_launch &a) {
    const dim3 grid(max_tiles<8 * N>(a), tiles_of(a.rows, 16 * M));
    LAUNCH((packed_expert_kernel<F, T, M, N>), grid, num_threads, 0, stream, planes, a);
}

template <int F, class T>
void multiply_by_type(cudaStream_t stream, const packed_planes &planes,
                      const expert_product_launch &a) {
    if (a.num_choices <= (int64_t)narrow_mean * a.num_own)
        multiply_by<F, T, 1, 1>(stream, planes, a);
    else
        multiply_by<F, T, tall_m<F>, 4>(stream, planes, a);
}

template <int F>
void multiply_by_form(cudaStream_t stream, const packed_planes &planes,
                      const expert_product_launch &a) {
    if (a.bf16)
        multiply_by_type<F, __nv_bfloat16>(stream, planes, a);
    else
        multiply_by_type<F, __half>(stream, planes, a);
}

template <int... F>
void multiply_by_one_of(cudaStream_t stream, int form, const packed_planes &planes,
                        const expert_product_launch &a, std::integer_sequence<int, F...>) {
    ((form == F ? multiply_by_form<F>(stream, planes, a) : void()), ...);
}

} // namespace

cudaError_t launch_packed_experts(cudaStream_t stream, int form, const struct packed_planes *planes,
                                  const struct expert_product_launch *args) {
    multiply_by_one_of(stream, form, *planes, *args,
                       std::make_integer_sequence<int, PACKED_NUM_FORMS>());
    return cudaGetLastError();
}
