// What methods go on with behind a saved document, beside the rows of its heads: for tools that
// compare files.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "model/heads/recipe.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul {

// Of one head; all of it is empty for heads that go on with nothing.
struct SavedHeadState {
  std::map<std::int64_t, double> attention;        // that each position got of all queries
  std::map<std::int64_t, double> local_attention;  // of those within their windows
  std::int64_t n_gone = 0;                         // tokens whose keys and values were summed up
  std::pair<std::vector<double>, std::vector<double>> gone;  // their sums
  std::optional<Recipe> recipe;
};

struct SavedLayerState {
  std::vector<std::int64_t> query_positions;  // of the newest queries
  std::vector<float> queries;
  std::vector<float> merging;  // the tokens that later ones may merge with
  std::vector<std::int64_t> n_slots;
  std::vector<SavedHeadState> heads;  // [n_kv_heads]
};

// Slow, for tools. Throws as read_saved_head does.
SavedLayerState read_saved_state(const SavedHeader& header, LayerId layer);
// The last token's state after the last layer; empty where the files have none.
std::vector<float> read_saved_last_hidden(const SavedHeader& header);

}  // namespace longhaul
