// What two saved documents differ in, in words.
#pragma once
#include <string>
#include <vector>

#include "worker/snapshot/saved_header.h"

namespace longhaul {

// A line each, at most one for a head: settings, tokens, and for each head the positions that only
// one has and how far keys and values at common positions are apart. Empty where nothing differs.
std::vector<std::string> compare_saved(const SavedHeader& a, const SavedHeader& b);

// Of one head; empty where nothing differs. Pure.
std::string compare_rows(const SavedRows& a, const SavedRows& b);

}  // namespace longhaul
