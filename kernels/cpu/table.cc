// The table of this instruction set's kernels.
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {

void rms_norm(const RmsNormTask& task);
void swiglu(const SwigluTask& task);
void rope(const RopeTask& task);
void widen_bf16(const std::uint16_t* in, std::int64_t n, float* out);
void combine(const CombineTask& task);
RowStatistics row_statistics(const float* x, std::int64_t n);
std::int64_t find_first(const float* x, std::int64_t n, float value);
void kv_append(const KvAppendTask& task);
std::size_t attend_scratch_bytes(std::int64_t head_dim);
void attend(const AttentionTask& task);
void few_rows_linear(const FewRowsLinearTask& task);
void tiled_linear(const TiledLinearTask& task);
std::int64_t few_rows_x_floats(std::int64_t n_in, bool weights_are_bf16);
void pack_few_rows_x(const PackTask& task);
void round_x_to_bf16(const float* x, std::int64_t n, float* out);
std::size_t tiled_linear_scratch_bytes();
void pack_pair_x(const PairXTask& task);
void pair_linear(const PairLinearTask& task);
void pair_few_rows(const PairLinearTask& task);
std::int64_t int8_x_bytes(std::int64_t group);
void quantise_int8_x(const Int8XTask& task);
void int8_linear(const Int8LinearTask& task);
ProbeResult probe_float_products(std::int64_t n_rounds, float x);
ProbeResult probe_bf16_products(std::int64_t n_rounds, float x);
ProbeResult probe_int8_products(std::int64_t n_rounds, float x);
ProbeResult probe_read(const float* x, std::int64_t n);

const Kernels kernels = {
    .rms_norm = rms_norm,
    .swiglu = swiglu,
    .rope = rope,
    .widen_bf16 = widen_bf16,
    .combine = combine,
    .row_statistics = row_statistics,
    .find_first = find_first,
    .kv_append = kv_append,
    .attend_scratch_bytes = attend_scratch_bytes,
    .attend = attend,
    .amx_attend_scratch_bytes = nullptr,
    .amx_attend = nullptr,
    .few_rows_linear = few_rows_linear,
    .tiled_linear = tiled_linear,
    .few_rows_x_floats = few_rows_x_floats,
    .pack_few_rows_x = pack_few_rows_x,
    .round_x_to_bf16 = round_x_to_bf16,
    .tiled_linear_scratch_bytes = tiled_linear_scratch_bytes,
#if defined(__AVX512BF16__)
    .pack_pair_x = pack_pair_x,
    .pair_linear = pair_linear,
    .pair_few_rows = pair_few_rows,
#else
    .pack_pair_x = nullptr,
    .pair_linear = nullptr,
    .pair_few_rows = nullptr,
#endif
    .amx_pack_x = nullptr,
    .amx_linear_scratch_bytes = nullptr,
    .amx_linear = nullptr,
    .amx_few_rows = nullptr,
    .int8_x_bytes = int8_x_bytes,
    .quantise_int8_x = quantise_int8_x,
    .int8_linear = int8_linear,
    .amx_int8_scratch_bytes = nullptr,
    .amx_int8_linear = nullptr,
    .probe_float_products = probe_float_products,
    .probe_bf16_products = probe_bf16_products,
    .probe_int8_products = probe_int8_products,
    .probe_read = probe_read,
};

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
