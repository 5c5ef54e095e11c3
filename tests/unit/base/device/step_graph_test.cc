// Steps that are noted: they do what they would do at once, and go as a graph where they are the
// same as the step before.
#include "base/device/step_graph.h"

#include <numeric>

#include "base/error.h"
#include "tests/unit/base/device/on_gpu.h"
#include "tests/unit/kernels/each_device.h"

namespace longhaul::test {
namespace {

using Words = std::vector<std::uint32_t>;

// A step that uploads words and copies them to some place.
struct Step {
  cuda::Stream& stream;
  void note(const Words& words, std::uint32_t* to) {
    stream.note_step();
    copy(words, to);
  }
  void copy(const Words& words, std::uint32_t* to) {
    const auto bytes = std::as_bytes(std::span(words));
    const std::byte* uploaded = stream.upload(bytes);
    cuda::copy_on_device(stream, reinterpret_cast<std::byte*>(to), uploaded, bytes.size());
  }
};

Words words_from(std::uint32_t first, std::size_t n) {
  Words out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

TEST_F(Gpu, StepsThatAreTheSameGoAsAGraphWithNewData) {
  Step step{stream()};
  const Memory<std::uint32_t> there(stream().ref(), 100);
  for (std::uint32_t i = 0; i < 5; ++i) {
    step.note(words_from(i, 100), there.data());
    EXPECT_EQ(there.values(), words_from(i, 100));  // which waits
    EXPECT_EQ(stream().steps()->n_launched(), i);
  }
  EXPECT_EQ(stream().steps()->n_captured(), 1);
}

TEST_F(Gpu, ADifferentStepIsNeverReplayed) {
  Step step{stream()};
  const Memory<std::uint32_t> a(stream().ref(), 100);
  Memory<std::uint32_t> b(stream().ref(), 100);
  for (std::uint32_t i = 0; i < 12; ++i) {
    const bool to_a = i / 3 % 2 == 0;
    step.note(words_from(i, 100), to_a ? a.data() : b.data());
    if (i % 4 == 3) step.copy(words_from(7, 50), b.data());  // and now and then a longer one
    stream().submit();
    EXPECT_EQ((to_a ? a : b).values()[99], i + 99);
    EXPECT_EQ(b.values()[0] == 7, i % 4 == 3);
    b.write(words_from(1000, 100));
  }
  EXPECT_GT(stream().steps()->n_launched(), 0);
  EXPECT_LT(stream().steps()->n_launched(), 8);
}

TEST_F(Gpu, NotedWorkIsDoneWhenItIsSubmittedOrNever) {
  Step step{stream()};
  const Memory<std::uint32_t> there(stream().ref(), 10);
  step.note(words_from(1, 10), there.data());
  stream().drop_step();
  EXPECT_EQ(there.values(), Words(10));
  for (std::uint32_t i = 2; i < 5; ++i) {
    step.note(words_from(i, 10), there.data());
    EXPECT_NE(stream().open_step(), nullptr);
    stream().submit();
    EXPECT_EQ(stream().open_step(), nullptr);
    step.copy(words_from(9, 1), there.data());  // at once, behind the step
    EXPECT_EQ(there.values()[0], 9U);
    EXPECT_EQ(there.values()[1], i + 1);
  }
}

// More data than the staging has room for goes as ever; then there is more room.
TEST_F(Gpu, DataThatDoNotFitAreUploadedAnyhow) {
  Step step{stream()};
  const std::size_t n = 200'000;
  const Memory<std::uint32_t> there(stream().ref(), static_cast<std::int64_t>(3 * n));
  for (std::uint32_t i = 0; i < 6; ++i) {
    stream().note_step();
    for (std::uint32_t part = 0; part < 3; ++part) {
      step.copy(words_from(i + part, n), there.data() + part * n);
    }
    const Words got = there.values();
    for (std::uint32_t part = 0; part < 3; ++part) {
      EXPECT_EQ(got[part * n], i + part);
      EXPECT_EQ(got[part * n + n - 1], i + part + n - 1);
    }
  }
  EXPECT_GE(stream().steps()->n_launched(), 2);
}

// Scratch memory that moves takes the noted work that uses the old one along.
TEST_F(Gpu, ScratchMayGrowInAStep) {
  Step step{stream()};
  const Memory<std::uint32_t> there(stream().ref(), 100);
  for (std::uint32_t i = 0; i < 9; ++i) {
    const std::size_t bytes = i < 3 ? 400 : i < 6 ? 4'000'000 : 400;
    stream().note_step();
    auto* small = reinterpret_cast<std::uint32_t*>(stream().scratch(400));
    step.copy(words_from(i, 100), small);
    cuda::copy_on_device(stream(), reinterpret_cast<std::byte*>(there.data()),
                         reinterpret_cast<const std::byte*>(small), 400);
    cuda::fill_with_zeros(stream(), stream().scratch(bytes), bytes);
    EXPECT_EQ(there.values(), words_from(i, 100));
  }
}

// Work that cannot be captured.
struct Refuses {
  int* n_calls;
  bool operator==(const Refuses&) const = default;
  void queue(void* /*native*/) const {
    if (++*n_calls == 2) throw Error(ErrorCode::kCuda, "not in a capture");
  }
};

TEST_F(Gpu, WhatCannotBeAGraphIsDoneWithout) {
  Step step{stream()};
  const Memory<std::uint32_t> there(stream().ref(), 10);
  int n_calls = 0;
  for (std::uint32_t i = 0; i < 4; ++i) {
    step.note(words_from(i, 10), there.data());
    cuda::queue_work(stream(), Refuses{&n_calls});
    EXPECT_EQ(there.values(), words_from(i, 10));
  }
  EXPECT_EQ(n_calls, 5);  // once for each step, and the capture
  EXPECT_EQ(stream().steps()->n_launched(), 0);
}

}  // namespace
}  // namespace longhaul::test
