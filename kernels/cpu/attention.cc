// Runs the tasks of attention on all threads and merges the ranges of keys that were split.
#include <algorithm>

#include "kernels/cpu/attention_schedule.h"
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/operators.h"

namespace longhaul::cpu {
namespace {

// Tasks of fewer rows wait for memory whatever multiplies them, unless they are over codes.
constexpr std::int64_t kAmxRows = 16;

bool amx_takes(KvType type) { return type == KvType::kBf16 || holds_codes(type); }
bool amx_takes(const KvBlockShape& shape) {
  return kernels().amx_attend != nullptr && amx_takes(shape.k_type) && amx_takes(shape.v_type) &&
         shape.head_dim % kAmxUnit == 0 && shape.block_size % kAmxUnit == 0;
}

// Few rows that compute rather than wait where vectors multiply: with fewer of them those are as
// fast, and read in an order that memory likes better.
bool few_gain_by_amx(const AttentionTask& task) {
  if (!holds_codes(task.k_type) || !holds_codes(task.v_type)) return false;
  const bool has_int4 = task.k_type == KvType::kInt4 || task.v_type == KvType::kInt4;
  const std::int64_t n_rows = task.n_tokens * task.n_heads;
  return n_rows >= (has_int4 ? 4 : 5) && n_rows <= kAmxFewRows;
}

// Leaves the task as its kernel wants it.
auto kernel_of(AttentionTask& task, bool has_amx) {
  const Kernels& kernels = cpu::kernels();
  if (has_amx && (task.rows_apart || task.n_tokens * task.n_heads >= kAmxRows)) {
    // AMX keeps rows apart however panels are cut, and asks for runs of one length.
    task.rows_apart = false;
    return kernels.amx_attend;
  }
  return has_amx && few_gain_by_amx(task) ? kernels.amx_attend_few : kernels.attend;
}

std::size_t scratch_bytes(std::int64_t head_dim, bool has_amx) {
  const Kernels& kernels = cpu::kernels();
  const std::size_t bytes = kernels.attend_scratch_bytes(head_dim);
  if (!has_amx) return bytes;
  return std::max({bytes, kernels.amx_attend_scratch_bytes(head_dim),
                   kernels.amx_attend_few_scratch_bytes(head_dim)});
}

}  // namespace

void attention(const AttentionArgs& args) {
  const AttentionSchedule schedule = schedule_attention(args);
  thread_local Scratch partial_scratch;
  float* partials = partial_scratch.floats(schedule.n_partial_floats);
  const bool has_amx = amx_takes(args.shape);
  const std::size_t n_scratch_bytes = scratch_bytes(args.shape.head_dim, has_amx);
  const auto attend = [&](std::int64_t i, bool goes_on) {
    thread_local Scratch scratch;
    AttentionTask task = schedule.tasks[static_cast<std::size_t>(i)];
    const auto [split, range] = schedule.split_of[static_cast<std::size_t>(i)];
    if (split >= 0) {
      redirect(task,
               partial_state(schedule.splits[static_cast<std::size_t>(split)], range, partials));
    }
    if (!goes_on) task.n_blocks_ahead = 0;
    task.scratch = scratch.bytes(n_scratch_bytes);
    kernel_of(task, has_amx)(task);
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
