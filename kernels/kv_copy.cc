#include "kernels/kv_copy.h"

#include <fmt/format.h>
#include "base/error.h"
#include "kernels/kv_block_check.h"
#include "kernels/kv_quantise.h"
#include "kernels/operators.h"

namespace longhaul {
namespace {

void check(const KvCopyArgs& args) {
  check_kv_block_shape("kv_copy", args.shape);
  for (const KvCopyItem& item : args.items) {
    require(item.from != nullptr && item.to != nullptr && item.from_slot >= 0 &&
                item.to_slot >= 0 && item.n_tokens >= 0 &&
                item.from_slot + item.n_tokens <= args.shape.block_size &&
                item.to_slot + item.n_tokens <= args.shape.block_size,
            fmt::format("kv_copy: {} tokens from slot {} to slot {} of blocks of {}", item.n_tokens,
                        item.from_slot, item.to_slot, args.shape.block_size));
  }
}

}  // namespace

void kv_copy(StreamRef stream, const KvCopyArgs& args) {
  check(args);
  run_on(stream, cpu::kv_copy, cuda::kv_copy, args);
}

}  // namespace longhaul
