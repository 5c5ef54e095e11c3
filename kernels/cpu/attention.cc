// Runs the tasks of attention on all threads and merges the ranges of keys that were split.
#include <algorithm>

#include "kernels/cpu/attention_schedule.h"
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

// Tasks of fewer rows wait for memory whatever multiplies them.
constexpr std::int64_t kAmxRows = 16;

bool amx_takes(KvType type) {
  return type == KvType::kBf16 || type == KvType::kInt8 || type == KvType::kInt4;
}
bool amx_takes(const KvBlockShape& shape) {
  return kernels().amx_attend != nullptr && amx_takes(shape.k_type) && amx_takes(shape.v_type) &&
         shape.head_dim % kAmxUnit == 0 && shape.block_size % kAmxUnit == 0;
}

}  // namespace

void attention(const AttentionArgs& args) {
  const AttentionSchedule schedule = schedule_attention(args);
  thread_local Scratch partial_scratch;
  float* partials = partial_scratch.floats(schedule.n_partial_floats);
  const Kernels& kernels = cpu::kernels();
  const bool has_amx = amx_takes(args.shape);
  std::size_t scratch_bytes = kernels.attend_scratch_bytes(args.shape.head_dim);
  if (has_amx) {
    scratch_bytes = std::max(scratch_bytes, kernels.amx_attend_scratch_bytes(args.shape.head_dim));
  }
  const auto attend = [&](std::int64_t i, bool goes_on) {
    thread_local Scratch scratch;
    AttentionTask task = schedule.tasks[static_cast<std::size_t>(i)];
    const auto [split, range] = schedule.split_of[static_cast<std::size_t>(i)];
    if (split >= 0) {
      redirect(task,
               partial_state(schedule.splits[static_cast<std::size_t>(split)], range, partials));
    }
    if (!goes_on) task.n_blocks_ahead = 0;
    task.scratch = scratch.bytes(scratch_bytes);
    const bool by_amx = has_amx && (task.rows_apart || task.n_tokens * task.n_heads >= kAmxRows);
    // AMX keeps rows apart however panels are cut, and asks for runs of one length.
    task.rows_apart = task.rows_apart && !by_amx;
    (by_amx ? kernels.amx_attend : kernels.attend)(task);
  };
  const auto n_tasks = static_cast<std::int64_t>(schedule.tasks.size());
  if (schedule.splits.empty()) {
    parallel_for(n_tasks, [&](std::int64_t i) { attend(i, /*goes_on=*/false); });
  } else {
    parallel_for_neighbours(n_tasks, attend);
  }
  for (const SplitTile& split : schedule.splits) {
    for (std::int64_t range = 0; range < split.n_ranges; ++range) {
      merge(split.into, partial_state(split, range, partials));
    }
  }
}

}  // namespace longhaul::cpu
