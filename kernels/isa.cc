#include "kernels/isa.h"

#include <omp.h>

#include <atomic>
#include <string>

#include <fmt/format.h>
#include "base/error.h"
#include "kernels/amx.h"
#include "kernels/bf16_pairs.h"
#include "kernels/cpu/kernels.h"

namespace longhaul {
namespace {

constexpr Isa kAllIsas[] = {Isa::kBaseline,   Isa::kAvx2,       Isa::kAvx512,
                            Isa::kAvx512Vnni, Isa::kAvx512Bf16, Isa::kAmx};

bool machine_has(Isa isa) {
#if defined(LONGHAUL_KERNELS_X86)
  if (isa == Isa::kAvx2) {
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
           __builtin_cpu_supports("f16c") != 0;
  }
  if (isa != Isa::kBaseline) {
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
           __builtin_cpu_supports("fma") != 0 &&
           (isa < Isa::kAvx512Vnni || __builtin_cpu_supports("avx512vnni") != 0) &&
           (isa < Isa::kAvx512Bf16 || __builtin_cpu_supports("avx512bf16") != 0) &&
           (isa < Isa::kAmx || may_use_amx());
  }
#endif
  return isa == Isa::kBaseline;
}

std::atomic<Isa>& active() {
  static std::atomic<Isa> isa{supported_isas().back()};
  return isa;
}

std::atomic<bool>& multiplies_pairs() {
#if defined(LONGHAUL_KERNELS_X86)
  static std::atomic<bool> pairs{__builtin_cpu_is("intel") == 0};
#else
  static std::atomic<bool> pairs{false};
#endif
  return pairs;
}

// What OpenMP starts with on this thread, before set_kernel_threads changes it.
int default_threads() {
  thread_local const int n_threads = omp_get_max_threads();
  return n_threads;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512_vnni";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAmx:
      return "amx";
  }
  return "unknown";
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> out;
  for (const Isa isa : kAllIsas) {
    if (machine_has(isa)) out.push_back(isa);
  }
  return out;
}

Isa active_isa() { return active().load(std::memory_order_relaxed); }

void set_active_isa(Isa isa) {
  if (!machine_has(isa)) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("instruction set {} was asked for, but this machine has only up to {}",
                            name_of(isa), name_of(supported_isas().back())));
  }
  active().store(isa, std::memory_order_relaxed);
}

Isa isa_named(std::string_view name) {
  for (const Isa isa : kAllIsas) {
    if (name == name_of(isa)) return isa;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no instruction set; choose baseline, avx2, avx512, avx512_vnni, "
                          "avx512_bf16 or amx",
                          name));
}

bool bf16_pairs() { return multiplies_pairs().load(std::memory_order_relaxed); }

void set_bf16_pairs(bool pairs) { multiplies_pairs().store(pairs, std::memory_order_relaxed); }

void set_kernel_threads(int n_threads) {
  require(n_threads >= 0, fmt::format("set_kernel_threads: {} threads", n_threads));
  const int before = default_threads();  // reads OpenMP's own number before it is changed
  omp_set_num_threads(n_threads == 0 ? before : n_threads);
}

int kernel_threads() { return omp_get_max_threads(); }

namespace cpu {

const Kernels& kernels() {
#if defined(LONGHAUL_KERNELS_X86)
  switch (active_isa()) {
    case Isa::kAmx: {
      static const Kernels with_amx = amx::with_amx(avx512_bf16::kernels);
      return with_amx;
    }
    case Isa::kAvx512Bf16:
      return avx512_bf16::kernels;
    case Isa::kAvx512Vnni:
      return avx512_vnni::kernels;
    case Isa::kAvx512:
      return avx512::kernels;
    case Isa::kAvx2:
      return avx2::kernels;
    case Isa::kBaseline:
      break;
  }
#endif
  return baseline::kernels;
}

}  // namespace cpu
}  // namespace longhaul
