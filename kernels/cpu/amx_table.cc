// The table of kernels for machines with AMX.
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {

std::size_t amx_attend_scratch_bytes(std::int64_t head_dim);
void amx_attend(const AttentionTask& task);
void amx_pack_x(const AmxXTask& task);
std::size_t amx_linear_scratch_bytes();
void amx_linear(const AmxLinearTask& task);
void amx_few_rows(const AmxLinearTask& task);
std::size_t amx_int8_scratch_bytes(std::int64_t group);
void amx_int8_linear(const Int8LinearTask& task);
ProbeResult amx_probe_bf16_products(std::int64_t n_rounds, float x);
ProbeResult amx_probe_int8_products(std::int64_t n_rounds, float x);

Kernels with_amx(const Kernels& others) {
  Kernels out = others;
  out.amx_attend_scratch_bytes = amx_attend_scratch_bytes;
  out.amx_attend = amx_attend;
  out.amx_pack_x = amx_pack_x;
  out.amx_linear_scratch_bytes = amx_linear_scratch_bytes;
  out.amx_linear = amx_linear;
  out.amx_few_rows = amx_few_rows;
  out.amx_int8_scratch_bytes = amx_int8_scratch_bytes;
  out.amx_int8_linear = amx_int8_linear;
  out.probe_bf16_products = amx_probe_bf16_products;
  out.probe_int8_products = amx_probe_int8_products;
  return out;
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
