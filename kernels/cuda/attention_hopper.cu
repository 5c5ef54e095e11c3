// Prefill attention on Hopper's tensor cores (compute capability 9.0a), with an online softmax,
// giving partial states, over keys that attention_hopper_prepare.cu has converted.
//
// A thread block stays on its multiprocessor and takes tasks of 128 rows while there are any. One
// thread of a third warpgroup copies units of keys to shared memory by bulk copies, kStages ahead;
// two warpgroups multiply 64 rows each. A unit's `full` barrier ends when its bytes have come, its
// `empty` one when all warps have read it. Tasks follow each other through the stages without a
// gap:
//
//   stages  task 7 | unit unit unit | task 140 | unit unit ... | no task
//
// so the first units of a task come while the states of the one before are stored.
//
// The two warpgroups take turns to begin products, so that the softmax of one runs under the
// products of the other, and its own under its product with values (Shah et al. 2024,
// FlashAttention-3, section 3.1 and 3.2).
#include <algorithm>

#include "base/device/gpu_memory.h"
#include "base/error.h"
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_hopper_schedule.h"
#include "kernels/cuda/attention_mma_compute.cuh"
#include "kernels/cuda/attention_mma_store.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/parcel.h"

namespace longhaul::cuda {
namespace {

constexpr int kColumnBytes = 128;  // of 8 columns

// As attention_mma_compute.cuh and _store.cuh read it.
template <int kDim>
struct HopperConfig {
  static constexpr KvType kType = KvType::kBf16;
  static constexpr bool kCodes = false;
  static constexpr bool kTokenCodes = false;
  static constexpr int kDimGroups = 1;
  static constexpr int kHeadDim = kDim;
  static constexpr int kKeys = kUnitKeys;
  static constexpr int kPartialRows = kHopperRows;
  static constexpr int kDimSteps = kDim / 16;
  static constexpr int kKeySteps = kKeys / 16;
  static constexpr int kScoreGroups = kKeys / 8;
  static constexpr int kOutGroups = kDim / 8;
  static constexpr int kRangeWords = 0;
  static constexpr int kRangesAt = 0;

  static constexpr int kConsumers = 2 * kWarpgroup;
  static constexpr int kThreads = kConsumers + kWarpgroup;
  // A thread block begins with the most that all its threads can have alike, a multiple of 8, of
  // the 65,536 of a multiprocessor. What one warpgroup takes others must have left: who takes more
  // than there is waits for ever.
  static constexpr int kConsumerRegisters = 232;
  static constexpr int kProducerRegisters = 40;
  static constexpr int kFirstRegisters = 65536 / kThreads / 8 * 8;
  static_assert(kConsumers * kConsumerRegisters + kWarpgroup * kProducerRegisters <=
                kThreads * kFirstRegisters);
  static constexpr int kStages = kDim == 64 ? 6 : 4;
  static constexpr int kPartBytes = kUnitKeys * kDim * 2;  // of K or V
  static constexpr int kUnitBytes = 2 * kPartBytes;
  static constexpr int kKStepBytes = kUnitKeys * 16;  // from 8 dims of K to the next
  static constexpr int kVStepBytes = kDim * 16;       // from 8 keys of V to the next
  // Bytes of shared memory: the stages, what is in them, their barriers.
  static constexpr int kInfoAt = kStages * kUnitBytes;
  static constexpr int kFullAt = kInfoAt + kStages * 16;
  static constexpr int kEmptyAt = kFullAt + kStages * 8;
  static constexpr int kSharedBytes = kEmptyAt + kStages * 8;
};

// What of it is known to all threads.
struct Stages {
  std::byte* shared;
  TileInfo* info;
  std::uint64_t* full;
  std::uint64_t* empty;
};
template <typename C>
__device__ __forceinline__ Stages stages_of(std::byte* shared) {
  return {shared, reinterpret_cast<TileInfo*>(shared + C::kInfoAt),
          reinterpret_cast<std::uint64_t*>(shared + C::kFullAt),
          reinterpret_cast<std::uint64_t*>(shared + C::kEmptyAt)};
}

// What all threads need of a task's rows.
__device__ __forceinline__ Rows rows_of(const AttentionWork& work, const HopperTask& task) {
  const AttentionItemRef& item = work.items[task.item];
  const std::int64_t* positions = work.positions + item.positions_at;
  return {.first_position = positions[task.first_row / item.gqa_group],
          .last_position = positions[(task.first_row + task.n_rows - 1) / item.gqa_group],
          .sink = item.sink,
          .recent = item.recent};
}

// Where tasks come from: the first of each thread block has its number, further ones are counted.
struct TaskList {
  const HopperTask* tasks;
  std::int32_t n_tasks;
  std::int32_t* n_taken;  // beside the first ones
  const KeyUnit* units;
  const std::byte* prepared;
  bool operator==(const TaskList&) const = default;
};

// By one thread: fills the stages.
template <typename C>
class Producer {
 public:
  __device__ __forceinline__ explicit Producer(const Stages& stages) : stages_(stages) {}

  // The beginning of a task; -1: there is none.
  __device__ __forceinline__ void begin_task(std::int32_t task) {
    const int stage = next_stage();
    stages_.info[stage] = {task, 0, 0};
    arrive(stages_.full + stage);
  }

  // What the task's rows see.
  __device__ __forceinline__ void add_units(const TaskList& list, const HopperTask& task,
                                            const Rows& rows) {
    for (int range = 0; range < 2; ++range) {
      for (std::int32_t u = task.first_unit[range]; u < task.end_unit[range]; ++u) {
        const KvBlockRef keys = {nullptr, list.units[u].first_position, list.units[u].n_keys};
        const Slots slots =
            visible_slots(keys, rows.first_position, rows.last_position, rows.sink, rows.recent);
        if (slots.end == 0) continue;
        const int stage = next_stage();
        stages_.info[stage] = {keys.first_position, static_cast<std::int32_t>(slots.end), 0};
        arrive_and_expect(stages_.full + stage, C::kUnitBytes);
        copy_bulk(stages_.shared + stage * C::kUnitBytes,
                  list.prepared + std::int64_t{u} * C::kUnitBytes, C::kUnitBytes,
                  stages_.full + stage);
      }
    }
  }

 private:
  // When what it had before has been read. Phase f of `empty` is the reading of its f-th.
  __device__ __forceinline__ int next_stage() {
    const int stage = n_ % C::kStages;
    if (n_ >= C::kStages) wait_for(stages_.empty + stage, (n_ / C::kStages - 1) % 2);
    ++n_;
    return stage;
  }

  const Stages& stages_;
  int n_ = 0;
};

template <typename C>
__device__ __forceinline__ void produce(const AttentionWork& work, const TaskList& list,
                                        const Stages& stages) {
  Producer<C> producer(stages);
  auto number = static_cast<std::int32_t>(blockIdx.x);
  while (number < list.n_tasks) {
    producer.begin_task(number);
    producer.add_units(list, list.tasks[number], rows_of(work, list.tasks[number]));
    number = static_cast<std::int32_t>(gridDim.x) + atomicAdd(list.n_taken, 1);
  }
  producer.begin_task(-1);
}

// The right side that lies so many bytes further in shared memory: its address is in the lower
// half. Products wait for what says where their right sides are, so that is one addition, of a
// number that the compiler knows to be the same in all lanes.
__device__ __forceinline__ std::uint64_t further(std::uint64_t right, int bytes) {
  return (right & 0xffffffff00000000U) |
         (static_cast<std::uint32_t>(right) + static_cast<std::uint32_t>(bytes / 16));
}
__device__ __forceinline__ std::uint64_t of_all_lanes(std::uint64_t right) {
  return (right & 0xffffffff00000000U) | shuffle_from(static_cast<std::uint32_t>(right), 0);
}

// Begins scores = q K of the unit in a stage.
template <typename C>
__device__ __forceinline__ void begin_scores(const Thread<C>& thread, const std::byte* k,
                                             float (&scores)[C::kScoreGroups][4]) {
  const std::uint64_t first = of_all_lanes(right_side(k, kColumnBytes, C::kKStepBytes));
#pragma unroll
  for (int step = 0; step < C::kDimSteps; ++step) {
    wgmma_bf16(scores, thread.q[step], further(first, 2 * step * C::kKStepBytes),
               /*accumulates=*/step > 0);
  }
}

// Begins o += weights V.
template <typename C>
__device__ __forceinline__ void begin_outputs(const std::uint32_t (&weights)[C::kKeySteps][4],
                                              const std::byte* k, Thread<C>& thread) {
  const std::uint64_t first =
      of_all_lanes(right_side(k + C::kPartBytes, kColumnBytes, C::kVStepBytes));
#pragma unroll
  for (int step = 0; step < C::kKeySteps; ++step) {
    wgmma_bf16(thread.o, weights[step], further(first, 2 * step * C::kVStepBytes),
               /*accumulates=*/true);
  }
}

template <typename C>
__device__ __forceinline__ void pack_weights(const float (&scores)[C::kScoreGroups][4],
                                             std::uint32_t (&weights)[C::kKeySteps][4]) {
#pragma unroll
  for (int step = 0; step < C::kKeySteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* both = &scores[2 * step + i / 2][i % 2 * 2];
      weights[step][i] = bf16_pair(both[0], both[1]);
    }
  }
}

// Where unit or mark number n is; n is no negative number.
template <typename C>
__device__ __forceinline__ int stage_of(int n) {
  return static_cast<int>(static_cast<unsigned>(n) % C::kStages);
}
template <typename C>
__device__ __forceinline__ int phase_of(int n) {
  return static_cast<int>(static_cast<unsigned>(n) / C::kStages % 2);
}

// What is in the stage of number n, when it has come.
template <typename C>
__device__ __forceinline__ TileInfo wait_for_stage(const Stages& stages, int n) {
  wait_for(stages.full + stage_of<C>(n), phase_of<C>(n));
  return stages.info[stage_of<C>(n)];
}
template <typename C>
__device__ __forceinline__ void give_back_stage(const Stages& stages, int n) {
  sync_warp();  // the whole warp has read the stage before it is given back
  if (threadIdx.x % kWarp == 0) arrive(stages.empty + stage_of<C>(n));
}

// Whose products are begun next. The warpgroups' barriers have a number each; it is the first one's
// turn first, and its turn again when all is done.
class Turns {
 public:
  __device__ __forceinline__ Turns() : is_first_(threadIdx.x < kWarpgroup) {
    if (!is_first_) pass();
  }
  __device__ __forceinline__ void await() const { wait_at_number<kBoth>(is_first_ ? 1 : 2); }
  __device__ __forceinline__ void pass() const { arrive_at_number<kBoth>(is_first_ ? 2 : 1); }
  __device__ __forceinline__ void end() const {
    if (is_first_) await();
  }

 private:
  static constexpr int kBoth = 2 * kWarpgroup;
  bool is_first_;
};

// The rows of a warpgroup against all units from number n on; the number of the next task's mark.
// The scores of the next unit and the outputs of this one are begun together. The scores are done
// first, and become weights while the outputs are summed:
//
//   tensor cores   | scores 1 | outputs 0 |   the other's    | scores 2 | outputs 1 |
//   this one                  | weights 1 |   scale, pack    |          | weights 2 |
template <typename C>
__device__ __forceinline__ int attend_units(const Rows& rows, const Stages& stages, int n,
                                            float log2_scale, const Turns& turns,
                                            Thread<C>& thread) {
  const auto k_of = [&](int unit) { return stages.shared + stage_of<C>(unit) * C::kUnitBytes; };
  TileInfo info = wait_for_stage<C>(stages, n);
  if (info.n_keys == 0) return n;
  float scores[C::kScoreGroups][4] = {};
  wgmma_fence(scores, thread.q);
  begin_scores<C>(thread, k_of(n), scores);
  wgmma_commit();
  wgmma_wait<0>(scores);
  float factors[2];
  finish_scores<C>(thread, nullptr, info, rows, scores);
  weigh_scores<C>(thread, log2_scale, scores, factors);  // nothing to be scaled yet
  std::uint32_t weights[C::kKeySteps][4];
  pack_weights<C>(scores, weights);
  for (;; ++n) {
    info = wait_for_stage<C>(stages, n + 1);
    if (info.n_keys == 0) break;
    turns.await();
    wgmma_fence(scores, thread.o, weights);
    begin_scores<C>(thread, k_of(n + 1), scores);
    wgmma_commit();
    begin_outputs<C>(weights, k_of(n), thread);
    wgmma_commit();
    turns.pass();
    wgmma_wait<1>(scores);
    finish_scores<C>(thread, nullptr, info, rows, scores);
    weigh_scores<C>(thread, log2_scale, scores, factors);
    compute_first(thread.l[0] + thread.l[1], stages.info);
    wgmma_wait<0>(thread.o);
    give_back_stage<C>(stages, n);
    // The largest score of a row grows seldom, and times 1 nothing changes.
    if (any_in_warp(factors[0] != 1.0F || factors[1] != 1.0F)) scale_outputs<C>(thread, factors);
    pack_weights<C>(scores, weights);
  }
  wgmma_fence(thread.o, weights);
  begin_outputs<C>(weights, k_of(n), thread);
  wgmma_commit();
  wgmma_wait<0>(thread.o);
  give_back_stage<C>(stages, n);
  return n + 1;
}

template <typename C>
__device__ __forceinline__ void consume(const AttentionWork& work, const TaskList& list,
                                        const Stages& stages) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  Thread<C> thread;
  thread.g = lane / 4;
  thread.t = lane % 4;
  thread.first_key = 0;
  const Turns turns;
  for (int n = 0;;) {
    const auto number = static_cast<std::int32_t>(wait_for_stage<C>(stages, n).first_position);
    if (number < 0) break;
    give_back_stage<C>(stages, n);
    const HopperTask& task = list.tasks[number];
    const AttentionTask tile = {.first_member = number,
                                .member_rows = task.n_rows,
                                .first_row = task.first_row,
                                .n_rows = task.n_rows,
                                .first_block = 0,
                                .n_blocks = 0};
    load_queries<C>(work, tile, first_row, thread);
    n = attend_units<C>(rows_of(work, task), stages, n + 1, work.sm_scale * 1.4426950408889634F,
                        turns, thread);
    finish_rows<C>(thread, work.sm_scale);
    store_rows<C>(work, tile, first_row, thread);
  }
  turns.end();
}

// A thread block for each multiprocessor, or for each task if those are fewer; C::kThreads threads,
// C::kSharedBytes of shared memory.
template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1) hopper_kernel(AttentionWork work, TaskList list) {
  const Stages stages = stages_of<C>(shared_memory());
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kStages; ++i) {
      init_barrier(stages.full + i, 1);
      init_barrier(stages.empty + i, C::kConsumers / kWarp);
    }
    fence_barrier_init();
  }
  __syncthreads();  // barriers are made before they are used
  if (static_cast<int>(threadIdx.x) < C::kConsumers) {
    take_registers<C::kConsumerRegisters>();
    consume<C>(work, list, stages);
  } else {
    leave_registers<C::kProducerRegisters>();
    if (static_cast<int>(threadIdx.x) == C::kConsumers) produce<C>(work, list, stages);
  }
}

template <typename C>
void run_pass(Stream& stream, const AttentionArgs& args, const HopperPass& pass) {
  Parcel parcel;
  const std::size_t items_at = parcel.add(pass.items);
  const std::size_t positions_at = parcel.add(pass.positions);
  const std::size_t units_at = parcel.add(pass.units);
  const std::size_t tasks_at = parcel.add(pass.tasks);
  const std::size_t members_at = parcel.add(pass.members);
  const std::size_t splits_at = parcel.add(pass.splits);
  const std::byte* base = stream.upload(parcel.bytes());
  const auto* units = part<KeyUnit>(base, units_at);
  const std::size_t prepared_bytes = pass.units.size() * C::kUnitBytes;
  constexpr std::size_t kCounterBytes = 16;
  std::byte* counter =
      stream.scratch(kCounterBytes + prepared_bytes +
                     static_cast<std::size_t>(pass.n_partial_floats) * sizeof(float));
  std::byte* prepared = counter + kCounterBytes;
  fill_with_zeros(stream, counter, kCounterBytes);
  prepare_keys(stream, args.shape, units, static_cast<std::int64_t>(pass.units.size()), prepared);
  AttentionWork work = work_of(args);
  work.items = part<AttentionItemRef>(base, items_at);
  work.members = part<AttentionMember>(base, members_at);
  work.positions = part<std::int64_t>(base, positions_at);
  work.partials = reinterpret_cast<float*>(prepared + prepared_bytes);
  work.n_tasks = static_cast<std::int64_t>(pass.tasks.size());
  const TaskList list = {.tasks = part<HopperTask>(base, tasks_at),
                         .n_tasks = static_cast<std::int32_t>(pass.tasks.size()),
                         .n_taken = reinterpret_cast<std::int32_t*>(counter),
                         .units = units,
                         .prepared = prepared};
  launch(stream, "attention: prefill on Hopper", hopper_kernel<C>,
         {.x = std::min<std::int64_t>(work.n_tasks, stream.device().n_multiprocessors),
          .block = C::kThreads,
          .shared_bytes = static_cast<std::size_t>(C::kSharedBytes)},
         work, list);
  merge_ranges(stream, work, part<AttentionSplit>(base, splits_at),
               static_cast<std::int64_t>(pass.splits.size()), kHopperRows);
}

template <typename C>
void run(Stream& stream, const AttentionArgs& args) {
  const HopperLimits limits = {.most_units = kConvertedKeysBytes / C::kUnitBytes,
                               .multiprocessors = stream.device().n_multiprocessors};
  for (const HopperPass& pass : make_hopper_passes(args, limits)) {
    run_pass<C>(stream, args, pass);
  }
}

}  // namespace

bool has_hopper_kernel(const KvBlockShape& shape, const DeviceInfo& device) {
#if defined(LONGHAUL_BUILDS_SM90A)
  return device.major == 9 && device.minor == 0 && shape.k_type != KvType::kF32 &&
         shape.v_type != KvType::kF32 && (shape.head_dim == 64 || shape.head_dim == 128);
#else
  static_cast<void>(shape);
  static_cast<void>(device);
  return false;
#endif
}

void attention_hopper(Stream& stream, const AttentionArgs& args) {
  if (args.shape.head_dim == 64) return run<HopperConfig<64>>(stream, args);
  run<HopperConfig<128>>(stream, args);
}

}  // namespace longhaul::cuda
