// When documents that are being read are saved, so that a run that ends early goes on from there.
// Pure: knows no clock but the seconds that steps took.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace longhaul {

struct CheckpointEvery {
  enum class Unit {
    kCost,     // so seldom that saving takes at most n of the time (0.02: 2 %)
    kChunks,   // such that no more than n chunks are lost, but at least two
    kSeconds,  // after n seconds of reading
    kNever,    // also not when the run is stopped
  };
  Unit unit = Unit::kCost;
  double n = 0.02;
  bool operator==(const CheckpointEvery&) const = default;
};

// "16" (chunks), "90s", "10m", "2h", "2%" (of the time), "never". Throws kInvalidArgument.
CheckpointEvery checkpoint_every(const std::string& text);

class CheckpointClock {
 public:
  explicit CheckpointClock(CheckpointEvery every) : every_(every) {}

  // A chunk of a document was read; all caches take so many bytes now. Further chunks are under
  // way: a checkpoint comes after them and has them.
  void chunk_done(double seconds, std::size_t kv_bytes, std::int64_t n_under_way = 0);
  // It took so long that nothing else was done, and was written beside steps that took so long.
  void checkpoint_done(double seconds, double beside_seconds = 0.0);
  // Whether it is time; counts anew then.
  bool take_due();

 private:
  CheckpointEvery every_;
  std::int64_t n_chunks_ = 0;  // since the last checkpoint, without those under way
  std::int64_t n_under_way_ = 0;
  double seconds_ = 0.0;       // of reading since then
  double guessed_cost_ = 0.0;  // of the first one
  double last_cost_ = -1.0;
};

}  // namespace longhaul
