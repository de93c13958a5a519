/* wgmma. Sections are those of the PTX ISA, "Asynchronous warpgroup level matrix
 * multiply-accumulate operation" unless another is named. Each warp computes its 16 rows at its own
 * wait; what the other three do shows by the order in which they begin products. */
#include "wgmma.h"

#include "block.h"
#include "device.h"
#include "fatal.h"
#include "shared_memory.h"
#include "tensor_core.h"

#include <string.h>

namespace cudasim {

const int ROWS = 16, INNER = 16; /* a warp's, and of one product: "wgmma.mma_async", .m64nNk16 */
const int CHUNK = 16;            /* an H100's, tensor_core.h */
const int GROUP = 8;             /* elements of 16 bytes, and rows of a core matrix */
const int NO_SWIZZLE = 16;       /* bytes of a row of its pattern */

/* "Matrix Descriptor Format": fields of the start address, the leading and the stride byte offset
 * without their last four bits, the base offset and the swizzle mode. */
struct matrix {
    uint32_t start, leading, stride;
    int swizzle_bytes;
};

static matrix decode_descriptor(const site &where, uint64_t bits) {
    static const int modes[] = {NO_SWIZZLE, 128, 64, 32};
    auto offset = [bits](int shift) { return (uint32_t)(bits >> shift & 0x3fff) << 4; };
    matrix m = {offset(0), offset(16), offset(32), modes[bits >> 62]};
    if ((bits >> 49 & 7) != 0)
        fatal("%s (%s:%d): a base offset is not simulated", where.operation, where.file,
              where.line);
    /* "Matrix Descriptor Format", base offset: 0 says that the pattern of 8 rows repeats at
     * multiples of its bytes. */
    if (m.swizzle_bytes != NO_SWIZZLE &&
        m.start % (uint32_t)(GROUP * m.swizzle_bytes) >= (uint32_t)m.swizzle_bytes)
        fatal("%s (%s:%d): the matrix at 0x%x begins within the pattern of its swizzle",
              where.operation, where.file, where.line, m.start);
    return m;
}

/* Where the 16 bytes lie of row `row`, column `column`, of what lies in rows: M or N and the inner
 * dimension, or transposed the other way round. "Strides" and "Canonical layouts", for both of
 * K-major and MN-major; "Shared Memory Matrix Layout", of the swizzling modes. */
static uint32_t address_of(const matrix &m, bool is_transposed, int row, int column) {
    const uint32_t width = (uint32_t)m.swizzle_bytes / 16; /* of a pattern, in 16 bytes */
    const uint32_t r = (uint32_t)row, c = (uint32_t)column;
    const uint32_t in_pattern = r % GROUP * (uint32_t)m.swizzle_bytes + c % width * 16;
    uint32_t offset;
    if (m.swizzle_bytes == NO_SWIZZLE) /* the offsets' roles change places when transposed */
        offset = r / GROUP * (is_transposed ? m.leading : m.stride) +
                 c * (is_transposed ? m.stride : m.leading);
    else
        offset = r / GROUP * m.stride + (is_transposed ? c / width * m.leading : 0);
    const uint32_t address = m.start + offset + in_pattern;
    return address ^ (address >> 7 & (width - 1)) << 4;
}

/* Elements [row][column] of `num_rows` from first_row on, 8 num_columns each, of memory as it is,
 * or as the async proxy sees it. */
static std::vector<uint16_t> gather(const site &where, const matrix &m, bool is_transposed,
                                    int first_row, int num_rows, int num_columns,
                                    bool by_async_proxy) {
    std::vector<uint16_t> out((size_t)(num_rows * num_columns * GROUP));
    uint16_t *to = out.data();
    for (int row = 0; row < num_rows; row++)
        for (int column = 0; column < num_columns; column++, to += GROUP) {
            const uint32_t address = address_of(m, is_transposed, first_row + row, column);
            memcpy(to, shared_at(where, current_block->shared, address, 16, by_async_proxy), 16);
        }
    return out;
}

static int first_row_of(const warp_state *warp) {
    return warp->index % WARPGROUP_WARPS * ROWS;
}

static std::vector<uint16_t> gather_a(const pending_product &p, bool by_async_proxy) {
    if (p.shape.has_a_registers)
        return {};
    return gather(p.where, decode_descriptor(p.where, p.a), false,
                  first_row_of(running_thread()->warp), ROWS, INNER / GROUP, by_async_proxy);
}

/* Rows are N, or transposed the inner dimension. */
static std::vector<uint16_t> gather_b(const pending_product &p, bool by_async_proxy) {
    const matrix m = decode_descriptor(p.where, p.b);
    if (p.shape.is_b_transposed)
        return gather(p.where, m, true, 0, INNER, p.shape.num_columns / GROUP, by_async_proxy);
    return gather(p.where, m, false, 0, p.shape.num_columns, INNER / GROUP, by_async_proxy);
}

/* "Register Fragments and Shared Memory Matrix Layouts": row and column of a lane's element i of
 * four, of A's registers (two halves each) and of sums, in columns of 8. */
static int row_of(int lane, int i) {
    return lane / 4 + i % 2 * 8;
}

struct factors {
    float a[ROWS][INNER];
    std::vector<float> b; /* [INNER][columns] */
};

static float decode(bool is_bf16, uint16_t bits) {
    return is_bf16 ? __bfloat162float({bits}) : __half2float({bits});
}

static void decode_factors(const pending_product &p, factors *out) {
    const bool bf16 = p.shape.is_bf16;
    const int columns = p.shape.num_columns;
    if (p.shape.has_a_registers)
        for (int lane = 0; lane < WARP_LANES; lane++)
            for (int i = 0; i < 4; i++)
                for (int half = 0; half < 2; half++)
                    out->a[row_of(lane, i)][lane % 4 * 2 + half + i / 2 * 8] =
                        decode(bf16, (uint16_t)(p.a_values[lane][i] >> 16 * half));
    else
        for (int i = 0; i < ROWS * INNER; i++)
            out->a[i / INNER][i % INNER] = decode(bf16, p.a_elements[(size_t)i]);
    out->b.resize((size_t)(INNER * columns));
    for (int k = 0; k < INNER; k++)
        for (int n = 0; n < columns; n++)
            out->b[(size_t)(k * columns + n)] = decode(
                bf16,
                p.b_elements[(size_t)(p.shape.is_b_transposed ? k * columns + n : n * INNER + k)]);
}

/* Adds to four sums of a row, in columns from `column` on. */
static void add_products(const factors &f, int columns, int row, int column, float *sums) {
    four_floats sum, b, products[CHUNK];
    memcpy(&sum, sums, sizeof sum);
    for (int k = 0; k < CHUNK; k++) {
        memcpy(&b, &f.b[(size_t)(k * columns + column)], sizeof b);
        products[k] = f.a[row][k] * b;
    }
    sum = add_chunk(sum, products, CHUNK, KEPT_BITS);
    memcpy(sums, &sum, sizeof sum);
}

/* [row][column] to [lane][n][4] and back. */
template <class Use> static void for_each_sum(int columns, Use use) {
    for (int lane = 0; lane < WARP_LANES; lane++)
        for (int n = 0; n < columns / 8; n++)
            for (int i = 0; i < 4; i++)
                use(row_of(lane, i / 2), 8 * n + lane % 4 * 2 + i % 2,
                    (size_t)((lane * (columns / 8) + n) * 4 + i));
}

/* The sums of all lanes after it. */
static std::vector<float> multiply(const pending_product &p) {
    const int columns = p.shape.num_columns;
    factors f;
    decode_factors(p, &f);
    std::vector<float> sums((size_t)(ROWS * columns)), lanes(sums.size());
    if (p.shape.adds)
        for_each_sum(columns, [&](int row, int column, size_t at) {
            sums[(size_t)(row * columns + column)] = p.before[at];
        });
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < columns; column += 4)
            add_products(f, columns, row, column, &sums[(size_t)(row * columns + column)]);
    for_each_sum(columns, [&](int row, int column, size_t at) {
        lanes[at] = sums[(size_t)(row * columns + column)];
    });
    return lanes;
}

/* Begun and not waited for, with these sums; NULL: none. */
static pending_product *find_pending(warp_products *products, const float *sums, int lane) {
    for (pending_product &p : products->pending)
        if (p.sums[lane] == sums)
            return &p;
    return nullptr;
}

static size_t sum_bytes(const pending_product &p) {
    return (size_t)p.shape.num_columns / 2 * sizeof(float);
}

static bool is_untouched(const pending_product &p) {
    for (const float *sums : p.sums) {
        const unsigned char *bytes = reinterpret_cast<const unsigned char *>(sums);
        for (size_t i = 0; i < sum_bytes(p); i++)
            if (bytes[i] != 0xff)
                return false;
    }
    return true;
}

/* "wgmma.fence": registers of sums that are on their way are accessed only by products of the same
 * shape. */
static void take_sums(warp_products *products, pending_product *p) {
    const pending_product *earlier = find_pending(products, p->sums[0], 0);
    if (earlier != nullptr) {
        if (earlier->shape.num_columns != p->shape.num_columns)
            fatal("%s (%s:%d): the sums are those of a product of another shape",
                  p->where.operation, p->where.file, p->where.line);
        if (!is_untouched(*p))
            fatal("%s (%s:%d): registers of sums were changed before the product of line %d was "
                  "waited for",
                  p->where.operation, p->where.file, p->where.line, earlier->where.line);
        return;
    }
    const size_t count = sum_bytes(*p) / sizeof(float);
    p->before.resize(WARP_LANES * count);
    for (size_t lane = 0; lane < WARP_LANES; lane++) {
        memcpy(&p->before[lane * count], p->sums[lane], sum_bytes(*p));
        memset(p->sums[lane], 0xff, sum_bytes(*p));
    }
}

/* "fence.proxy.async", in the section of membar and fence: what was stored by other instructions
 * is seen by wgmma, an operation of the async proxy, only after it. */
static void check_proxy(const pending_product &p) {
    if (gather_a(p, true) != p.a_elements || gather_b(p, true) != p.b_elements)
        fatal("%s (%s:%d): shared memory was stored to without a fence_async_proxy after it",
              p.where.operation, p.where.file, p.where.line);
}

/* "wgmma.mma_async", .aligned: all threads of a warpgroup execute the same one. */
static void join_warpgroup(const pending_product &p, warp_state *warp) {
    block_state *block = current_block;
    const int first = warp->index / WARPGROUP_WARPS * WARPGROUP_WARPS;
    warpgroup_products *group = &block->warpgroups[warp->index / WARPGROUP_WARPS];
    const uint64_t number = warp->products.num_begun++ - group->num_before;
    if (number == group->begun.size()) {
        for (int w = first; w < first + WARPGROUP_WARPS; w++)
            if (w >= block->num_warps || block->warps[w].live != 0xffffffffu)
                fatal("%s (%s:%d): warp %d of the warpgroup is not there", p.where.operation,
                      p.where.file, p.where.line, w);
        group->begun.push_back({p.shape, p.a, p.b, 0});
    }
    begun_product *begun = &group->begun[(size_t)number];
    if (!(begun->shape == p.shape) || begun->a != p.a || begun->b != p.b)
        fatal("%s (%s:%d): another warp of the warpgroup begins another product", p.where.operation,
              p.where.file, p.where.line);
    begun->num_warps++;
    while (!group->begun.empty() && group->begun.front().num_warps == WARPGROUP_WARPS) {
        group->begun.pop_front();
        group->num_before++;
    }
}

/* What a lane brings. */
struct lane_product {
    float *sums;
    const uint32_t *a_registers;
    uint64_t a, b;
};
static_assert(sizeof(lane_product) <= max_exchange_bytes, "a lane leaves it in its box");

static void read_lanes(const warp_exchange &meeting, pending_product *p) {
    for (int lane = 0; lane < WARP_LANES; lane++) {
        const lane_product own = read_lane<lane_product>(meeting, lane);
        if (lane > 0 && (own.a != p->a || own.b != p->b))
            fatal("%s (%s:%d): lanes with different descriptors", p->where.operation, p->where.file,
                  p->where.line);
        p->a = own.a;
        p->b = own.b;
        p->sums[lane] = own.sums;
        p->a_registers[lane] = own.a_registers;
        for (int i = 0; i < 4 && p->shape.has_a_registers; i++)
            p->a_values[lane][i] = own.a_registers[i];
    }
}

/* Called by the last lane. */
static void begin(warp_exchange &meeting) {
    warp_state *warp = running_thread()->warp;
    warp_products *products = &warp->products;
    pending_product p = {};
    p.where = running_thread()->waits_at;
    p.shape = products->shape;
    p.group = products->next_group;
    read_lanes(meeting, &p);
    if (the_machine().at_work->capability != 90)
        fatal("%s (%s:%d): of compute capability 9.0 alone", p.where.operation, p.where.file,
              p.where.line);
    if (!products->is_fenced)
        fatal("%s (%s:%d): no wgmma_fence after the last wgmma_wait", p.where.operation,
              p.where.file, p.where.line);
    join_warpgroup(p, warp);
    p.a_elements = gather_a(p, false);
    p.b_elements = gather_b(p, false);
    check_proxy(p);
    take_sums(products, &p);
    products->pending.push_back(std::move(p));
}

void begin_product(const site &where, const wgmma_shape &shape, float *sums,
                   const uint32_t *a_registers, uint64_t a, uint64_t b) {
    warp_state *warp = running_thread()->warp;
    if (warp->waiting != 0 && !(warp->products.shape == shape))
        fatal("%s (%s:%d): lanes with different products", where.operation, where.file, where.line);
    warp->products.shape = shape;
    const lane_product own = {sums, a_registers, a, b};
    exchange_all(where, &own, sizeof own, begin);
}

/* "wgmma.fence" */
void fence_products(const site &where) {
    exchange_all(where, &where, 0,
                 [](warp_exchange &) { running_thread()->warp->products.is_fenced = true; });
}

/* "wgmma.commit_group" */
void commit_products(const site &where) {
    exchange_all(where, &where, 0,
                 [](warp_exchange &) { running_thread()->warp->products.next_group++; });
}

static void check_unchanged(const pending_product &p) {
    if (!is_untouched(p))
        fatal("%s (%s:%d): registers of its sums were changed before the wait", p.where.operation,
              p.where.file, p.where.line);
    for (int lane = 0; lane < WARP_LANES && p.shape.has_a_registers; lane++)
        if (memcmp(p.a_registers[lane], p.a_values[lane], sizeof p.a_values[lane]) != 0)
            fatal("%s (%s:%d): registers of A were changed before the wait", p.where.operation,
                  p.where.file, p.where.line);
    if (gather_a(p, false) != p.a_elements || gather_b(p, false) != p.b_elements)
        fatal("%s (%s:%d): shared memory that it reads was changed before the wait",
              p.where.operation, p.where.file, p.where.line);
}

/* The oldest. Its sums are in their registers, or go on to the next product with them. */
static void complete(warp_products *products) {
    const pending_product p = std::move(products->pending.front());
    products->pending.erase(products->pending.begin());
    check_unchanged(p);
    std::vector<float> sums = multiply(p);
    const size_t count = sum_bytes(p) / sizeof(float);
    pending_product *next = find_pending(products, p.sums[0], 0);
    if (next != nullptr)
        next->before = std::move(sums);
    else
        for (size_t lane = 0; lane < WARP_LANES; lane++)
            memcpy(p.sums[lane], &sums[lane * count], sum_bytes(p));
}

/* "wgmma.wait_group" */
void wait_for_products(const site &where, int unfinished_groups, const float *sums) {
    struct request {
        int unfinished_groups;
        const float *sums;
    } own = {unfinished_groups, sums};
    exchange_all(where, &own, sizeof own, [](warp_exchange &meeting) {
        warp_products *products = &running_thread()->warp->products;
        const site &at = running_thread()->waits_at;
        const request asked = read_lane<request>(meeting, 0);
        while (!products->pending.empty() &&
               products->pending.front().group + (unsigned)asked.unfinished_groups <
                   products->next_group)
            complete(products);
        if (find_pending(products, asked.sums, 0) != nullptr)
            fatal("%s (%s:%d): the sums asked for are not waited for", at.operation, at.file,
                  at.line);
        products->is_fenced = false;
    });
}

void reset_products(warp_products *products) {
    products->pending.clear();
    products->next_group = 0;
    products->is_fenced = false;
    products->num_begun = 0;
}

void end_products(block_state *block, const warp_state *warp) {
    const warpgroup_products &group = block->warpgroups[warp->index / WARPGROUP_WARPS];
    if (!warp->products.pending.empty()) {
        const site &where = warp->products.pending[0].where;
        fatal("ends before %s (%s:%d) was waited for", where.operation, where.file, where.line);
    }
    if (warp->products.num_begun < group.num_before + group.begun.size())
        fatal("ends, and the warpgroup has begun a product without it");
}

void *aligned_shared(size_t alignment) {
    if (reinterpret_cast<uintptr_t>(current_grid.dynamic_shared) % alignment != 0)
        fatal("dynamic shared memory is a multiple of %zu only if its size is", alignment);
    return current_grid.dynamic_shared;
}

} // namespace cudasim

using namespace cudasim;

uint64_t matrix_descriptor(const void *shared, int swizzle_bytes, int leading_bytes,
                           int stride_bytes, const char *file, int line) {
    const site where = {"matrix_descriptor", file, line};
    check_shared_address(where, shared, 16);
    const uint64_t mode = swizzle_bytes == 128 ? 1 : swizzle_bytes == 64 ? 2 : 3;
    if (swizzle_bytes != 128 && swizzle_bytes != 64 && swizzle_bytes != 32)
        fatal("%s (%s:%d): a swizzle of %d bytes", where.operation, file, line, swizzle_bytes);
    for (int bytes : {leading_bytes, stride_bytes})
        if (bytes % 16 != 0 || bytes < 0 || bytes >> 18 != 0)
            fatal("%s (%s:%d): an offset of %d bytes", where.operation, file, line, bytes);
    return (uint64_t)shared_address(current_block->shared, shared) >> 4 |
           (uint64_t)(leading_bytes >> 4) << 16 | (uint64_t)(stride_bytes >> 4) << 32 | mode << 62;
}

void fence_async_proxy() {
    open_to_async_proxy(&current_block->shared);
}
