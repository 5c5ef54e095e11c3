#include "kernels/cuda/hopper_attention.h"

#include <atomic>

namespace longhaul {
namespace {
std::atomic<std::int64_t> rows{kUsualHopperRows};
}  // namespace

std::int64_t hopper_attention_rows() { return rows.load(std::memory_order_relaxed); }
void set_hopper_attention_rows(std::int64_t n_rows) {
  rows.store(n_rows, std::memory_order_relaxed);
}

}  // namespace longhaul
