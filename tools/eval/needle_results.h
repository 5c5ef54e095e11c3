// What a needle evaluation found, and how it is written: JSON (every question), CSV (the grid), a
// heat map, a table for people. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text_columns.h"
#include "model/head_profile.h"
#include "tools/eval/head_choice.h"
#include "tools/eval/heat_map.h"

namespace longhaul {

// One question and its answer.
struct NeedleCase {
  std::int64_t length = 0;  // of the document, tokens
  double depth = 0;         // in [0, 1]
  std::int64_t document = 0;
  std::int64_t position = 0;  // of the record's first token
  std::string key = {};
  std::string expected = {};
  std::string answer = {};
  bool is_right = false;
};

// One document as it was read.
struct NeedleReading {
  std::int64_t length = 0;
  std::int64_t document = 0;
  double prefill_seconds = 0;
  double answer_seconds = 0;
  std::size_t kv_bytes = 0;  // of the document's caches
};

// All documents with the same head roles.
struct NeedleRun {
  std::string name = {};
  std::optional<HeadId> head = {};  // the one that was changed, when every head is tried
  HeadRoles roles = {};
  std::vector<NeedleReading> readings = {};
  std::vector<NeedleCase> cases = {};
};

struct NeedleReport {
  std::string title = {};
  Json settings = {};
  std::vector<std::int64_t> lengths = {};
  std::vector<double> depths = {};
  std::vector<NeedleRun> runs = {};
  bool is_complete = true;
};

struct NeedleScore {
  std::int64_t n_asked = 0;
  std::int64_t n_right = 0;
  std::optional<double> rate() const {
    if (n_asked == 0) return std::nullopt;
    return static_cast<double>(n_right) / static_cast<double>(n_asked);
  }
};
NeedleScore score_of(const NeedleRun& run);
NeedleScore score_of(const NeedleRun& run, std::int64_t length, double depth);

Json to_json(const NeedleReport& report);
// Lines run,length,depth,asked,right,exact_match; every cell of every run.
std::string to_csv(const NeedleReport& report);
// Of one run: depth over length. Of a run per head: layer over KV head.
HeatMap to_heat_map(const NeedleReport& report);
// The same as text; columns that do not fit into `width` stand below the others.
std::string to_table(const NeedleReport& report, std::size_t width = kAnyWidth);

}  // namespace longhaul
