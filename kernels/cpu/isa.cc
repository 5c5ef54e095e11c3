#include "kernels/cpu/isa.h"

// How many of avx2 to amx this build has kernels for, from avx2 on.
#if LONGHAUL_X86_ISAS
#include <cpuid.h>
#endif

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>

#include "base/error.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/bf16_pairs.h"
#include "kernels/cpu/isa/kernels.h"

namespace longhaul {
namespace cpu {

namespace baseline {
extern const Kernels kernels;
}
#if LONGHAUL_X86_ISAS
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}
namespace avx512_vnni {
extern const Kernels kernels;
}
namespace avx512_bf16 {
extern const Kernels kernels;
}
namespace amx {
Kernels with_amx(const Kernels& others);
}
#endif

}  // namespace cpu

namespace {

// What there is to know of an instruction set.
struct IsaEntry {
  Isa isa;
  std::string_view name;
  bool (*machine_has)();             // what it needs beside those that stand above it
  const cpu::Kernels& (*kernels)();  // null in a build without them, as machine_has may be
};

template <const cpu::Kernels& kKernels>
const cpu::Kernels& table() {
  return kKernels;
}

#if LONGHAUL_X86_ISAS
#define LONGHAUL_ON_X86(...) __VA_ARGS__
template <const cpu::Kernels& kOthers>
const cpu::Kernels& amx_table() {
  static const cpu::Kernels with_amx = cpu::amx::with_amx(kOthers);
  return with_amx;
}
// Null where the build has no kernels for it: then nothing may refer to them. AMX has few of its
// own.
template <Isa kIsa, const cpu::Kernels& kKernels>
constexpr auto table_if_built() -> const cpu::Kernels& (*)() {
  if constexpr (static_cast<int>(kIsa) > LONGHAUL_X86_ISAS) {
    return nullptr;
  } else if constexpr (kIsa == Isa::kAmx) {
    return amx_table<kKernels>;
  } else {
    return table<kKernels>;
  }
}
// What clang 16's __builtin_cpu_supports does not know.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c();
}
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}
bool has_vnni() { return __builtin_cpu_supports("avx512vnni") != 0; }
bool has_bf16() { return __builtin_cpu_supports("avx512bf16") != 0; }
#else
#define LONGHAUL_ON_X86(...) nullptr
#endif

// In the order of Isa.
constexpr IsaEntry kIsas[] = {
    {Isa::kBaseline, "baseline", [] { return true; }, table<cpu::baseline::kernels>},
    {Isa::kAvx2, "avx2", LONGHAUL_ON_X86(has_avx2),
     LONGHAUL_ON_X86((table_if_built<Isa::kAvx2, cpu::avx2::kernels>()))},
    {Isa::kAvx512, "avx512", LONGHAUL_ON_X86(has_avx512),
     LONGHAUL_ON_X86((table_if_built<Isa::kAvx512, cpu::avx512::kernels>()))},
    {Isa::kAvx512Vnni, "avx512_vnni", LONGHAUL_ON_X86(has_vnni),
     LONGHAUL_ON_X86((table_if_built<Isa::kAvx512Vnni, cpu::avx512_vnni::kernels>()))},
    {Isa::kAvx512Bf16, "avx512_bf16", LONGHAUL_ON_X86(has_bf16),
     LONGHAUL_ON_X86((table_if_built<Isa::kAvx512Bf16, cpu::avx512_bf16::kernels>()))},
    {Isa::kAmx, "amx", LONGHAUL_ON_X86(may_use_amx),
     LONGHAUL_ON_X86((table_if_built<Isa::kAmx, cpu::avx512_bf16::kernels>()))}};

const IsaEntry& entry(Isa isa) { return kIsas[static_cast<std::size_t>(isa)]; }

struct Active {
  explicit Active(Isa first) { set(first); }
  void set(Isa to) {
    isa.store(to, std::memory_order_relaxed);
    kernels.store(&entry(to).kernels(), std::memory_order_relaxed);
  }
  std::atomic<Isa> isa;
  std::atomic<const cpu::Kernels*> kernels;
};

Active& active() {
  static Active the_active(supported_isas().back());
  return the_active;
}

std::atomic<bool>& multiplies_pairs() {
#if LONGHAUL_X86_ISAS
  static std::atomic<bool> pairs{__builtin_cpu_is("intel") == 0};
#else
  static std::atomic<bool> pairs{false};
#endif
  return pairs;
}

}  // namespace

std::string_view name_of(Isa isa) { return entry(isa).name; }

std::vector<Isa> supported_isas() {
  std::vector<Isa> out;
  for (const IsaEntry& each : kIsas) {
    if (each.kernels == nullptr || each.machine_has == nullptr || !each.machine_has()) break;
    out.push_back(each.isa);
  }
  return out;
}

Isa active_isa() { return active().isa.load(std::memory_order_relaxed); }

void set_active_isa(Isa isa) {
  const std::vector<Isa> supported = supported_isas();
  if (std::find(supported.begin(), supported.end(), isa) == supported.end()) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("instruction set {} was asked for, but this machine has only up to {}",
                            name_of(isa), name_of(supported.back())));
  }
  active().set(isa);
}

Isa isa_named(std::string_view name) {
  std::string known;
  for (const IsaEntry& each : kIsas) {
    if (name == each.name) return each.isa;
    if (!known.empty()) known += &each == std::end(kIsas) - 1 ? " or " : ", ";
    known += each.name;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no instruction set; choose {}", name, known));
}

bool bf16_pairs() { return multiplies_pairs().load(std::memory_order_relaxed); }

void set_bf16_pairs(bool pairs) { multiplies_pairs().store(pairs, std::memory_order_relaxed); }

const cpu::Kernels& cpu::kernels() { return *active().kernels.load(std::memory_order_relaxed); }

}  // namespace longhaul
