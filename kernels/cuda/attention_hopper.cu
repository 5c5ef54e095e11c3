// Prefill attention on Hopper's tensor cores (compute capability 9.0a), over blocks of bf16, with
// an online softmax, giving partial states. Two kernels:
//
//   prepare   converts blocks to the layout that wgmma's descriptors can name: it wants 8 values
//             along a sum as 16 neighbouring bytes, where blocks have pairs. 64 keys are a unit:
//             K [head_dim / 8, 64 keys, 8 dims], then V [64 / 8, head_dim, 8 keys]
//   attend    a thread block has 128 rows. One thread of a ninth warp copies units to shared memory
//             by bulk copies, kStages ahead; two warpgroups multiply 64 rows each. A unit's
//             `full` barrier ends when its bytes have come, its `empty` one when all warps have
//             read it.
#include <cstring>

#include "base/error.h"
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_hopper_schedule.h"
#include "kernels/cuda/attention_mma_compute.cuh"
#include "kernels/cuda/attention_mma_store.cuh"
#include "kernels/cuda/hopper.cuh"

namespace longhaul::cuda {
namespace {

constexpr std::int64_t kPassBytes = std::int64_t{512} << 20;
constexpr int kPrepareThreads = 256;
constexpr int kColumnBytes = 128;  // of 8 columns

// As attention_mma_compute.cuh and _store.cuh read it.
template <int kDim>
struct HopperConfig {
  static constexpr KvType kType = KvType::kBf16;
  static constexpr bool kCodes = false;
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
  static constexpr int kThreads = kConsumers + kWarp;
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

// grid.x is the unit. A thread writes 16 bytes: 4 words of a column.
__global__ void prepare_kernel(const KeyUnit* units, std::int64_t block_size, int head_dim,
                               std::int64_t v_at, std::byte* prepared) {
  const KeyUnit unit = units[blockIdx.x];
  const int part_bytes = kUnitKeys * head_dim * 2;
  std::byte* to = prepared + static_cast<std::int64_t>(blockIdx.x) * 2 * part_bytes;
  const auto* k = reinterpret_cast<const std::uint32_t*>(unit.block) + unit.first_slot;
  const auto* v =
      reinterpret_cast<const std::uint32_t*>(unit.block + v_at) + unit.first_slot / 2 * head_dim;
  const std::int64_t n_slots = block_size - unit.first_slot;  // zeros where the block has ended
  for (int i = static_cast<int>(threadIdx.x); i < part_bytes / 16; i += kPrepareThreads) {
    const int key = i % kUnitKeys;
    const int row = i / kUnitKeys * 4;
    Words4 out = {};
    for (int w = 0; w < 4 && key < n_slots; ++w) out.at[w] = k[(row + w) * block_size + key];
    reinterpret_cast<Words4*>(to)[i] = out;
  }
  for (int i = static_cast<int>(threadIdx.x); i < part_bytes / 16; i += kPrepareThreads) {
    const int row = i / head_dim * 4;
    Words4 out = {};
    for (int w = 0; w < 4 && 2 * (row + w) < n_slots; ++w) {
      out.at[w] = v[(row + w) * head_dim + i % head_dim];
    }
    reinterpret_cast<Words4*>(to + part_bytes)[i] = out;
  }
}

// One thread: fills the stages with what the tile's rows see, and marks the end.
template <typename C>
__device__ __forceinline__ void produce(const KeyUnit* units, const HopperTask& task,
                                        const Rows& rows, const std::byte* prepared,
                                        const Stages& stages) {
  int n = 0;
  const auto wait_until_free = [&] {
    // Phase f of `empty` is the reading of what was the stage's f-th.
    if (n >= C::kStages) wait_for(stages.empty + n % C::kStages, (n / C::kStages - 1) % 2);
  };
  for (int range = 0; range < 2; ++range) {
    for (std::int32_t u = task.first_unit[range]; u < task.end_unit[range]; ++u) {
      const KvBlockRef keys = {nullptr, units[u].first_position, units[u].n_keys};
      const Slots slots =
          visible_slots(keys, rows.first_position, rows.last_position, rows.sink, rows.recent);
      if (slots.end == 0) continue;
      wait_until_free();
      const int stage = n++ % C::kStages;
      stages.info[stage] = {keys.first_position, static_cast<std::int32_t>(slots.end), 0};
      arrive_and_expect(stages.full + stage, C::kUnitBytes);
      copy_bulk(stages.shared + stage * C::kUnitBytes, prepared + std::int64_t{u} * C::kUnitBytes,
                C::kUnitBytes, stages.full + stage);
    }
  }
  wait_until_free();
  stages.info[n % C::kStages] = {0, 0, 0};
  arrive(stages.full + n % C::kStages);
}

// A warpgroup's rows against the unit in a stage.
template <typename C>
__device__ __forceinline__ void attend_unit(const std::byte* k, const TileInfo& info,
                                            const Rows& rows, float log2_scale, Thread<C>& thread) {
  float scores[C::kScoreGroups][4] = {};
  wgmma_fence();  // orders what this thread did to scores and q before their use
#pragma unroll
  for (int step = 0; step < C::kDimSteps; ++step) {
    wgmma_bf16(scores, thread.q[step],
               right_side(k + 2 * step * C::kKStepBytes, kColumnBytes, C::kKStepBytes),
               /*accumulates=*/step > 0);
  }
  wgmma_wait(scores);
  finish_scores<C>(thread, nullptr, info, rows, scores);
  apply_softmax<C>(thread, log2_scale, scores);
  std::uint32_t weights[C::kKeySteps][4];
#pragma unroll
  for (int step = 0; step < C::kKeySteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* both = &scores[2 * step + i / 2][i % 2 * 2];
      weights[step][i] = bf16_pair(both[0], both[1]);
    }
  }
  const std::byte* v = k + C::kPartBytes;
  wgmma_fence();  // orders what this thread did to its outputs and weights before their use
#pragma unroll
  for (int step = 0; step < C::kKeySteps; ++step) {
    wgmma_bf16(thread.o, weights[step],
               right_side(v + 2 * step * C::kVStepBytes, kColumnBytes, C::kVStepBytes),
               /*accumulates=*/true);
  }
  wgmma_wait(thread.o);
}

template <typename C>
__device__ __forceinline__ void consume(const AttentionWork& work, const HopperTask& task,
                                        const Rows& rows, const Stages& stages) {
  const AttentionTask tile = {.first_member = task.item,
                              .member_rows = task.n_rows,
                              .first_row = task.first_row,
                              .n_rows = task.n_rows,
                              .first_block = 0,
                              .n_blocks = 0};
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  Thread<C> thread;
  thread.g = lane / 4;
  thread.t = lane % 4;
  thread.first_key = 0;
  load_queries<C>(work, tile, first_row, thread);
  const float log2_scale = work.sm_scale * 1.4426950408889634F;
  for (int n = 0;; ++n) {
    const int stage = n % C::kStages;
    wait_for(stages.full + stage, n / C::kStages % 2);
    const TileInfo info = stages.info[stage];
    if (info.n_keys == 0) break;
    attend_unit<C>(stages.shared + stage * C::kUnitBytes, info, rows, log2_scale, thread);
    sync_warp();  // the whole warp has read the stage before it is given back
    if (lane == 0) arrive(stages.empty + stage);
  }
  finish_rows<C>(thread, work.sm_scale);
  store_rows<C>(work, tile, first_row, thread);
}

// grid.x is the task; C::kThreads threads, C::kSharedBytes of shared memory.
template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    hopper_kernel(AttentionWork work, const KeyUnit* units, const HopperTask* tasks,
                  const std::byte* prepared) {
  const Stages stages = stages_of<C>(shared_memory());
  const HopperTask task = tasks[blockIdx.x];
  const AttentionItemRef& item = work.items[task.item];
  const std::int64_t* positions = work.positions + item.positions_at;
  const Rows rows = {
      .first_position = positions[task.first_row / item.gqa_group],
      .last_position = positions[(task.first_row + task.n_rows - 1) / item.gqa_group],
      .sink = item.sink,
      .recent = item.recent};
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kStages; ++i) {
      init_barrier(stages.full + i, 1);
      init_barrier(stages.empty + i, C::kConsumers / kWarp);
    }
    fence_barrier_init();
  }
  __syncthreads();  // barriers are made before they are used
  if (static_cast<int>(threadIdx.x) < C::kConsumers) {
    consume<C>(work, task, rows, stages);
  } else if (static_cast<int>(threadIdx.x) == C::kConsumers) {
    produce<C>(units, task, rows, prepared, stages);
  }
}

// Parts of one upload.
class Parcel {
 public:
  template <typename T>
  std::size_t add(const std::vector<T>& values) {
    const std::size_t at = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(at + values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(T));
    return at;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

template <typename T>
const T* part(const std::byte* base, std::size_t at) {
  return reinterpret_cast<const T*>(base + at);
}

template <typename C>
void run_pass(Stream& stream, const AttentionArgs& args, const HopperPass& pass) {
  std::vector<AttentionMember> members;
  for (std::size_t i = 0; i < pass.items.size(); ++i) {
    members.push_back({-1, static_cast<std::int64_t>(i)});
  }
  Parcel parcel;
  const std::size_t items_at = parcel.add(pass.items);
  const std::size_t positions_at = parcel.add(pass.positions);
  const std::size_t units_at = parcel.add(pass.units);
  const std::size_t tasks_at = parcel.add(pass.tasks);
  const std::size_t members_at = parcel.add(members);
  const std::byte* base = stream.upload(parcel.bytes());
  const auto* units = part<KeyUnit>(base, units_at);
  std::byte* prepared = stream.scratch(pass.units.size() * C::kUnitBytes);
  launch(stream, "attention: prepare", prepare_kernel,
         {.x = static_cast<std::int64_t>(pass.units.size()), .block = kPrepareThreads}, units,
         args.shape.block_size, C::kHeadDim, v_part(args.shape).at, prepared);
  const AttentionWork work = {.items = part<AttentionItemRef>(base, items_at),
                              .tasks = nullptr,
                              .members = part<AttentionMember>(base, members_at),
                              .positions = part<std::int64_t>(base, positions_at),
                              .blocks = nullptr,
                              .partials = nullptr,
                              .n_tasks = static_cast<std::int64_t>(pass.tasks.size()),
                              .block_size = args.shape.block_size,
                              .head_dim = args.shape.head_dim,
                              .k = k_part(args.shape),
                              .v = v_part(args.shape),
                              .sm_scale = args.sm_scale};
  launch(stream, "attention: prefill on Hopper", hopper_kernel<C>,
         {.x = work.n_tasks,
          .block = C::kThreads,
          .shared_bytes = static_cast<std::size_t>(C::kSharedBytes)},
         work, units, part<HopperTask>(base, tasks_at), static_cast<const std::byte*>(prepared));
}

template <typename C>
void run(Stream& stream, const AttentionArgs& args) {
  for (const HopperPass& pass : make_hopper_passes(args, kPassBytes / C::kUnitBytes)) {
    run_pass<C>(stream, args, pass);
  }
}

}  // namespace

bool has_hopper_kernel(const KvBlockShape& shape, const DeviceInfo& device) {
#if defined(LONGHAUL_BUILDS_SM90A)
  return device.major == 9 && device.minor == 0 && shape.k_type == KvType::kBf16 &&
         shape.v_type == KvType::kBf16 && (shape.head_dim == 64 || shape.head_dim == 128);
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
