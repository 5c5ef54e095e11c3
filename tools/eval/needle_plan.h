// Which documents a needle evaluation reads and which records stand in them: every cell of the
// grid (length, depth) is asked once per document number. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "tools/eval/needle_text.h"

namespace longhaul {

struct NeedlePlanArgs {
  std::vector<std::int64_t> lengths;      // tokens
  std::vector<double> depths;             // in [0, 1]
  std::int64_t n_documents = 1;           // for each cell
  std::int64_t records_per_document = 0;  // 0: one at each depth of the grid
  int n_digits = 6;
  NameWords words = NameWords::kNeverShared;
  std::uint64_t seed = 1;
};

struct PlannedNeedle {
  double depth = 0;
  NeedleRecord record = {};
};

struct PlannedDocument {
  std::int64_t length = 0;
  std::int64_t number = 0;  // among those of this length
  std::vector<PlannedNeedle> needles = {};
  std::uint64_t hay_draw = 0;  // where the hay begins; 0 for number 0: at its beginning
};

// Documents by length, then number. A document depends on its length, its number and the arguments,
// but not on which other lengths there are.
std::vector<PlannedDocument> plan_documents(const NeedlePlanArgs& args);

}  // namespace longhaul
