// What two saved documents differ in, in words.
#pragma once
#include <string>
#include <vector>

#include "worker/snapshot/saved_header.h"
#include "worker/snapshot/saved_state.h"

namespace longhaul {

// A line each, at most one for a head: settings, tokens, for each head the positions that only one
// has and how far keys and values at common positions are apart, and what methods go on with.
// Empty where nothing differs.
std::vector<std::string> compare_saved(const SavedHeader& a, const SavedHeader& b);

// Of one head, and of what methods go on with of a layer and of a head; empty where nothing
// differs. Pure.
std::string compare_rows(const SavedRows& a, const SavedRows& b);
std::string compare_layers(const SavedLayerState& a, const SavedLayerState& b);
std::string compare_states(const SavedHeadState& a, const SavedHeadState& b);

}  // namespace longhaul
