#include "kernels/cpu/threads.h"

#include <fmt/format.h>
#include <omp.h>

#include "base/error.h"

namespace longhaul {
namespace {

// What OpenMP starts with on this thread, before set_kernel_threads changes it.
int default_threads() {
  thread_local const int n_threads = omp_get_max_threads();
  return n_threads;
}

}  // namespace

void set_kernel_threads(int n_threads) {
  require(n_threads >= 0, fmt::format("set_kernel_threads: {} threads", n_threads));
  const int before = default_threads();  // reads OpenMP's own number before it is changed
  omp_set_num_threads(n_threads == 0 ? before : n_threads);
}

int kernel_threads() { return omp_get_max_threads(); }

void end_kernel_helpers() {
#ifndef __clang__
  omp_pause_resource_all(omp_pause_soft);
#endif
}

}  // namespace longhaul
