#include "kernels/cpu/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace longhaul {
#if defined(__x86_64__) && defined(__linux__)
namespace {

bool processor_has_amx() {
  constexpr unsigned kBf16 = 1U << 22;
  constexpr unsigned kTile = 1U << 24;
  constexpr unsigned kInt8 = 1U << 25;
  constexpr unsigned kAll = kBf16 | kTile | kInt8;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAll) == kAll;
}

// See Documentation/arch/x86/xstate.rst of Linux (from 5.16 on; others answer with an error).
bool kernel_allows_it() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool may_use_amx() {
  static const bool may = processor_has_amx() && kernel_allows_it();
  return may;
}
#else
bool may_use_amx() { return false; }
#endif

}  // namespace longhaul
