// Documents of an exact length in tokens, with records at exact depths: tokens in, tokens out.
// Pure; knows no model and no tokenizer.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace longhaul {

// The tokens of one record, and how deep it stands: 0 is in front of all hay, 1 behind it.
struct PlacedNeedle {
  double depth = 0;
  std::vector<std::int32_t> tokens = {};
};

struct HaystackArgs {
  std::span<const std::int32_t> start = {};  // stands first: <s> and such
  std::span<const std::int32_t> hay = {};  // repeated as often as needed, cut where the length ends
  std::int64_t first_hay = 0;              // token of `hay` to begin with
  std::span<const PlacedNeedle> needles = {};  // any order of depths
  std::int64_t length = 0;                     // of the whole document, needles and start included
};

struct Haystack {
  std::vector<std::int32_t> tokens = {};     // [length]
  std::vector<std::int64_t> positions = {};  // of each needle's first token, in the order given
};

// With n_hay = length - start - all needles, the needle of depth d stands behind
// round(d * n_hay) tokens of hay; needles of the same depth follow each other in the order given.
// Throws kInvalidArgument when the needles do not fit the length or there is no hay.
Haystack make_haystack(const HaystackArgs& args);

}  // namespace longhaul
