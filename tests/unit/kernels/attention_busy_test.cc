// How much of a chip prefill attention keeps busy: the schedules that kernels are launched with,
// played on multiprocessors that take tasks as the chip does. Times are those of work_balance.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/attention_hopper_schedule.h"
#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/hopper_attention.h"
#include "kernels/cuda/work_balance.h"

namespace longhaul::test {
namespace {

constexpr std::int64_t kBusyDim = 128;
constexpr std::int64_t kUnitsOfPass = kConvertedKeysBytes / (cuda::kUnitKeys * kBusyDim * 4);

// A rank's part of a chunk that ends a text of n_keys: two slabs of each head, against those keys
// of the text that one of n_ranks holds.
struct BusyCase {
  std::int64_t n_keys;
  std::int64_t chunk_len;
  std::int64_t n_ranks;
  std::int64_t gqa_group;
  std::int64_t n_retrieval;
  std::int64_t n_streaming;
  std::int64_t multiprocessors;

  std::string text() const {
    std::string out;
    for (const std::int64_t n :
         {n_keys, chunk_len, n_ranks, gqa_group, n_retrieval, n_streaming, multiprocessors}) {
      out += " " + std::to_string(n);
    }
    return out;
  }
};

struct BusyWork {
  std::vector<KvBlockRef> blocks;
  std::vector<std::vector<std::int64_t>> slabs;  // positions
  std::vector<AttentionItem> items;

  explicit BusyWork(const BusyCase& c) {
    const std::int64_t width = c.n_ranks == 1 ? c.chunk_len : c.chunk_len / (2 * c.n_ranks);
    const std::int64_t begin = c.n_keys - c.chunk_len;
    slabs.push_back({});
    for (std::int64_t i = 0; i < width; ++i) slabs[0].push_back(begin + i);
    if (c.n_ranks > 1) slabs.push_back({});
    for (std::int64_t i = 0; i < width && c.n_ranks > 1; ++i)
      slabs[1].push_back(c.n_keys - width + i);
    // The newest keys, so that streaming heads see their window.
    for (std::int64_t at = c.n_keys - c.n_keys / c.n_ranks; at < c.n_keys; at += 64) {
      blocks.push_back({nullptr, at, 64});
    }
    for (std::int64_t head = 0; head < c.n_retrieval + c.n_streaming; ++head) {
      for (const std::vector<std::int64_t>& slab : slabs) add_item(c, head, slab);
    }
  }

  void add_item(const BusyCase& c, std::int64_t head, const std::vector<std::int64_t>& slab) {
    const auto q_len = static_cast<std::int64_t>(slab.size());
    const bool is_streaming = head % 2 == 1 ? head / 2 < c.n_streaming
                                            : head / 2 >= c.n_retrieval;  // one beside the other
    items.push_back(
        {.q = TensorView<const float, 3>(nullptr, {q_len, c.gqa_group, kBusyDim}),
         .q_positions = slab,
         .blocks = blocks,
         .mask = is_streaming ? AttentionMask{.sink = 128, .recent = 256} : AttentionMask{},
         .state = {TensorView<float, 3>(nullptr, {q_len, c.gqa_group, kBusyDim}),
                   TensorView<float, 2>(nullptr, {q_len, c.gqa_group}),
                   TensorView<float, 2>(nullptr, {q_len, c.gqa_group})}});
  }
};

// Of all launches one after the other.
struct Busy {
  std::int64_t places = 0;
  std::int64_t time = 0;
  std::int64_t work = 0;         // of tiles that are not cut
  std::int64_t n_converted = 0;  // units of keys, of all passes
  double share() const { return static_cast<double>(work) / static_cast<double>(places * time); }
};

// Each tile of rows counts what it would take whole.
template <typename Tasks, typename UnitsOf>
void play(const Tasks& tasks, const UnitsOf& units_of, std::int64_t n_tiles, Busy& busy) {
  std::vector<std::int64_t> free_at(static_cast<std::size_t>(busy.places));
  std::int64_t end = 0;
  for (const auto& task : tasks) {  // in the order of the launch
    auto place = std::ranges::min_element(free_at);
    *place += units_of(task) + cuda::kTaskUnits;
    end = std::max(end, *place);
    busy.work += units_of(task);
  }
  busy.work += n_tiles * cuda::kTaskUnits;
  busy.time += end;
}

template <typename Splits>
std::int64_t tiles_of(std::size_t n_tasks, const Splits& splits) {
  auto out = static_cast<std::int64_t>(n_tasks);
  for (const cuda::AttentionSplit& split : splits) out -= split.n_ranges - 1;
  return out;
}

Busy play_case(const BusyCase& c) {
  const BusyWork work(c);
  const AttentionArgs args = {
      {.block_size = 64, .head_dim = kBusyDim, .k_type = KvType::kBf16, .v_type = KvType::kBf16},
      1.0F,
      work.items};
  const auto rows = static_cast<std::int64_t>(work.slabs[0].size()) * c.gqa_group;
  if (rows >= kUsualHopperRows) {
    Busy busy = {.places = c.multiprocessors};
    for (const auto& pass : cuda::make_hopper_passes(args, {kUnitsOfPass, c.multiprocessors})) {
      busy.n_converted += static_cast<std::int64_t>(pass.units.size());
      play(
          pass.tasks, [](const cuda::HopperTask& task) { return task.n_units(); },
          tiles_of(pass.tasks.size(), pass.splits), busy);
    }
    return busy;
  }
  Busy busy = {.places = cuda::kPrefillBlocksTogether * c.multiprocessors};
  const auto schedule = cuda::make_attention_schedule(
      args, {.mma = true, .wide_decode = true, .prefill_places = busy.places});
  const auto path = static_cast<std::size_t>(cuda::AttentionPath::kPrefill);
  play(
      schedule.tasks[path], [](const cuda::AttentionTask& task) { return task.n_blocks; },
      tiles_of(schedule.tasks[path].size(), schedule.splits[path]), busy);
  return busy;
}

// Below about 320 units for each place, a quarter of a millisecond on an H100, there is nothing
// left to cut: a range has no less than kMinRangeUnits, and the last two slabs' tasks do not
// interlock.
constexpr double kLostUnits = 35;

void expect_busy(const BusyCase& c) {
  const Busy busy = play_case(c);
  const double ideal = static_cast<double>(busy.work) / static_cast<double>(busy.places);
  const double lost = static_cast<double>(busy.time) - ideal;
  EXPECT_LE(lost, std::max(ideal * 0.05 / 0.95, kLostUnits))
      << c.text() << ": " << busy.share() << " of the time, " << ideal << " units for each place";
}

// Keys x chunks x ranks: half of the heads streaming, all retrieval, and one retrieval head.
void expect_all_busy(std::int64_t multiprocessors, std::int64_t gqa_group, std::int64_t step) {
  for (std::int64_t n_keys = 8192; n_keys <= 2 << 20; n_keys *= step) {
    for (std::int64_t chunk_len = 512; chunk_len <= 8192; chunk_len *= step) {
      for (std::int64_t n_ranks = 1; n_ranks <= 16; n_ranks *= step) {
        for (const std::int64_t n_retrieval : {8, 4, 1}) {
          expect_busy({n_keys, chunk_len, n_ranks, gqa_group, n_retrieval, 8 - n_retrieval,
                       multiprocessors});
        }
      }
    }
  }
}

TEST(AttentionBusy, NinetyFivePercentOfAnH100) { expect_all_busy(132, 4, 2); }
TEST(AttentionBusy, NinetyFivePercentOfOtherChips) {
  expect_all_busy(108, 4, 4);
  expect_all_busy(148, 4, 4);
  expect_all_busy(132, 8, 4);
}

// Converting a unit of keys takes a multiprocessor as long as so many units of products: what a
// head of 2,048 rows, 16 tiles, pays 13 % for (docs/cuda.md).
constexpr double kConversionUnits = 2;

// Of the time that a rank's prefill attention takes, the share that is products: the least for
// documents of 32K to 2M keys, half of the heads streaming, all retrieval, and one retrieval head.
double least_share(std::int64_t chunk_len) {
  double least = 1;
  for (std::int64_t n_keys = std::int64_t{32} << 10; n_keys <= std::int64_t{2} << 20; n_keys *= 4) {
    for (const std::int64_t n_retrieval : {8, 4, 1}) {
      const Busy busy = play_case({n_keys, chunk_len, 1, 4, n_retrieval, 8 - n_retrieval, 132});
      const double others = kConversionUnits * static_cast<double>(busy.n_converted);
      least = std::min(least, static_cast<double>(busy.work) /
                                  (static_cast<double>(busy.places * busy.time) + others));
    }
  }
  return least;
}

TEST(AttentionBusy, TheUsualChunkIsTheShortestThatLosesNoMoreThanFivePercent) {
  EXPECT_GE(least_share(kUsualGpuChunkLen), 0.95);
  EXPECT_LT(least_share(kUsualGpuChunkLen / 2), 0.95);
}

// A few tiles, each longer than what a place has to do.
TEST(AttentionBusy, LongTilesAreCut) {
  const std::vector<std::int64_t> n_units(5, 9000);
  const std::vector<std::int64_t> lengths = cuda::range_lengths(n_units, 4);
  std::vector<std::int64_t> tasks;
  for (std::size_t i = 0; i < n_units.size(); ++i) {
    std::int64_t end = 0;
    for (const Extent& range : cuda::ranges_of(n_units[i], lengths[i])) {
      EXPECT_EQ(range.begin, end);
      EXPECT_GE(range.size(), cuda::kMinRangeUnits);
      tasks.push_back(range.size());
      end = range.end;
    }
    EXPECT_EQ(end, n_units[i]);
  }
  EXPECT_EQ(cuda::time_of(n_units, 4), 2 * (9000 + cuda::kTaskUnits));
  EXPECT_LE(cuda::time_of(tasks, 4), 5 * 9000 / 4 * 102 / 100);
}

TEST(AttentionBusy, ShortLastRangesGoToTheOthers) {
  using Ranges = std::vector<Extent>;
  EXPECT_EQ(cuda::ranges_of(100, 100), (Ranges{{0, 100}}));
  EXPECT_EQ(cuda::ranges_of(101, 100), (Ranges{{0, 101}}));
  EXPECT_EQ(cuda::ranges_of(120, 100), (Ranges{{0, 100}, {100, 120}}));
  EXPECT_EQ(cuda::ranges_of(210, 100), (Ranges{{0, 105}, {105, 210}}));
}

}  // namespace
}  // namespace longhaul::test
