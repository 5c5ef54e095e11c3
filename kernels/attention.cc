#include "kernels/attention.h"

#include "kernels/kv_block_check.h"
#include "kernels/operators.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check_blocks(const KvBlockShape& shape, const AttentionItem& item, std::invocable auto op) {
  for (std::size_t b = 0; b < item.blocks.size(); ++b) {
    const KvBlockRef& block = item.blocks[b];
    require(block.data != nullptr && block.first_position >= 0 && block.n_tokens >= 0 &&
                block.first_position <= kMostAttentionPosition &&
                block.n_tokens <= shape.block_size,
            [&] {
              return fmt::format(
                  "{}: block {} has {} tokens from position {}{}; a block holds up to {}", op(), b,
                  block.n_tokens, block.first_position, block.data == nullptr ? " and no data" : "",
                  shape.block_size);
            });
    if (block.seen_by == nullptr) continue;
    require(!shape.quantises_groups(),
            [&] { return fmt::format("{}: slots of groups of tokens that some heads see", op()); });
    require(item.q.dim(1) <= kMostSeenByHeads, [&] {
      return fmt::format("{}: slots that some of {} heads see; {} can be told apart", op(),
                         item.q.dim(1), kMostSeenByHeads);
    });
  }
}

void check_table(Device device, const BlockTable& table, std::invocable auto op) {
  require(device == Device::kCuda && table.first_position >= 0 && table.n_tokens >= 0 &&
              table.first_position <= kMostAttentionPosition &&
              table.n_tokens <= kMostAttentionPosition,
          [&] {
            return fmt::format("{}: a table of {} tokens from position {}{}", op(), table.n_tokens,
                               table.first_position, device == Device::kCuda ? "" : " on a CPU");
          });
}

void check_item(Device device, const KvBlockShape& shape, const AttentionItem& item,
                std::size_t number) {
  const auto op = [number] { return fmt::format("attention: item {}", number); };
  const std::int64_t q_len = item.q.dim(0);
  require_equal(op, "head_dim of q", item.q.dim(2), shape.head_dim);
  require_equal(op, "size of q_positions", static_cast<std::int64_t>(item.q_positions.size()),
                q_len);
  constexpr std::string_view kNames[] = {"q_len of the state", "gqa_group of the state",
                                         "head_dim of the state"};
  for (int i = 0; i < 3; ++i) require_equal(op, kNames[i], item.state.o.dim(i), item.q.dim(i));
  for (int i = 0; i < 2; ++i) {
    require_equal(op, kNames[i], item.state.m.dim(i), item.q.dim(i));
    require_equal(op, kNames[i], item.state.l.dim(i), item.q.dim(i));
  }
  std::int64_t before = 0;
  for (const std::int64_t position : item.q_positions) {
    require(position >= before && position <= kMostAttentionPosition, [&] {
      return fmt::format("{}: query position {} after {}; they must ascend from 0", op(), position,
                         before);
    });
    before = position;
  }
  require(item.mask.sink >= 0 && item.mask.recent >= 0, [&] {
    return fmt::format("{}: mask of sink {} and recent {}", op(), item.mask.sink, item.mask.recent);
  });
  if (item.table)
    check_table(device, *item.table, op);
  else
    check_blocks(shape, item, op);
}

void check(Device device, const AttentionArgs& args) {
  check_kv_block_shape("attention", args.shape);
  require(args.sm_scale > 0.0F && args.sm_scale < 1e30F, [&] {
    return fmt::format("attention: sm_scale is {}, must be positive", args.sm_scale);
  });
  for (std::size_t i = 0; i < args.items.size(); ++i) {
    check_item(device, args.shape, args.items[i], i);
  }
}

}  // namespace

void attention(StreamRef stream, const AttentionArgs& args) {
  check(stream.device(), args);
  run_on(stream, cpu::attention, cuda::attention, args);
}

}  // namespace longhaul
