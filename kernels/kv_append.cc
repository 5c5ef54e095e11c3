#include "kernels/kv_append.h"

#include "kernels/kv_block_check.h"
#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check_item(Device device, const KvBlockShape& shape, const KvAppendItem& item,
                std::size_t number) {
  const auto op = [number] { return fmt::format("kv_append: item {}", number); };
  require_equal(op, "head_dim of k", item.k.dim(1), shape.head_dim);
  require_equal(op, "head_dim of v", item.v.dim(1), shape.head_dim);
  require_equal(op, "n_tokens of v", item.v.dim(0), item.k.dim(0));
  for (const std::int32_t row : item.rows) {
    require(0 <= row && row < item.k.dim(0),
            [&] { return fmt::format("{}: row {} of {}", op(), row, item.k.dim(0)); });
  }
  require(!shape.quantises_groups() || (item.rows.empty() && item.first_slot % kKvGroup == 0 &&
                                        item.k.dim(0) % kKvGroup == 0),
          [&] {
            return fmt::format("{}: {} tokens from slot {} are no whole groups of {} in order",
                               op(), item.n_tokens(), item.first_slot, kKvGroup);
          });
  require(item.first_slot >= 0,
          [&] { return fmt::format("{}: first_slot is {}", op(), item.first_slot); });
  require(item.entries == nullptr || device == Device::kCuda,
          [&] { return fmt::format("{}: a table of blocks on a CPU", op()); });
  const std::int64_t n_slots = static_cast<std::int64_t>(item.blocks.size()) * shape.block_size;
  require(item.first_slot + item.n_tokens() <= n_slots, [&] {
    return fmt::format("{}: {} tokens from slot {} do not fit into {} blocks of {}", op(),
                       item.n_tokens(), item.first_slot, item.blocks.size(), shape.block_size);
  });
}

}  // namespace

void check_kv_append(Device device, const KvAppendArgs& args) {
  check_kv_block_shape("kv_append", args.shape);
  require_cpu_for_groups("kv_append", device, args.shape);
  for (std::size_t i = 0; i < args.items.size(); ++i)
    check_item(device, args.shape, args.items[i], i);
}

void kv_append(StreamRef stream, const KvAppendArgs& args) {
  check_kv_append(stream.device(), args);
  run_on(stream, cpu::kv_append, cuda::kv_append, args);
}

}  // namespace longhaul
