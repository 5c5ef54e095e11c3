#include "kernels/kv_append.h"

#include <string>

#include "kernels/kv_block_check.h"
#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const KvAppendArgs& args) {
  check_kv_block_shape("kv_append", args.shape);
  for (std::size_t i = 0; i < args.items.size(); ++i) {
    const KvAppendItem& item = args.items[i];
    const std::string op = fmt::format("kv_append: item {}", i);
    require_equal(op, "head_dim of k", item.k.dim(1), args.shape.head_dim);
    require_equal(op, "head_dim of v", item.v.dim(1), args.shape.head_dim);
    require_equal(op, "n_tokens of v", item.v.dim(0), item.k.dim(0));
    if (args.shape.quantises_groups()) {
      require(item.first_slot % kKvGroup == 0 && item.k.dim(0) % kKvGroup == 0,
              fmt::format("{}: {} tokens from slot {} are no whole groups of {}", op, item.k.dim(0),
                          item.first_slot, kKvGroup));
    }
    require(item.first_slot >= 0, fmt::format("{}: first_slot is {}", op, item.first_slot));
    const std::int64_t n_slots =
        static_cast<std::int64_t>(item.blocks.size()) * args.shape.block_size;
    require(item.first_slot + item.k.dim(0) <= n_slots,
            fmt::format("{}: {} tokens from slot {} do not fit into {} blocks of {}", op,
                        item.k.dim(0), item.first_slot, item.blocks.size(), args.shape.block_size));
  }
}

}  // namespace

void kv_append(StreamRef stream, const KvAppendArgs& args) {
  check(args);
  require_cpu_for_groups("kv_append", stream.device(), args.shape);
  run_on(stream, cpu::kv_append, cuda::kv_append, args);
}

}  // namespace longhaul
