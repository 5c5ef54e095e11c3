// What one thread attains with AMX, from registers. See kernels/cpu/isa/probe.h.
#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/probe.h"

namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kSums = 4;  // rounds of a probe are of so many products

// The registers that are multiplied hold `x` everywhere; the sums are zero.
void fill_registers(float x) {
  alignas(64) float numbers[kAmxRows * kAmxColumns];
  for (float& number : numbers) number = x;
  finish_stores();
  _tile_loadd(4, numbers, kAmxRowBytes);
  _tile_loadd(5, numbers, kAmxRowBytes);
  _tile_loadd(6, numbers, kAmxRowBytes);
  _tile_loadd(7, numbers, kAmxRowBytes);
  amx_clear_sums();
}

float one_sum() {
  alignas(64) float sums[kAmxRows * kAmxColumns];
  _tile_stored(0, sums, kAmxRowBytes);
  finish_stores();
  return sums[0];
}

}  // namespace

ProbeResult probe_bf16_products(std::int64_t n_rounds, float x) {
  const AmxRegisters registers;
  fill_registers(x);
  for (std::int64_t i = 0; i < n_rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return {n_rounds * kSums * kAmxRows * kAmxColumns * kAmxPairs * 2, one_sum()};
}

ProbeResult probe_int8_products(std::int64_t n_rounds, float x) {
  const AmxRegisters registers;
  fill_registers(x);
  for (std::int64_t i = 0; i < n_rounds; ++i) {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  return {n_rounds * kSums * kAmxRows * kAmxColumns * kAmxBytes * 2, one_sum()};
}

}  // namespace longhaul::cpu::LONGHAUL_ISA_NAMESPACE
