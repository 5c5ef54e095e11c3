// FastGen (Ge et al. 2023, arXiv 2310.01801, section 4): when a text is whole, each head gets the
// cheapest recipe whose tokens hold enough of what its queries attended to, and goes on by it.
// Pure.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/heads/head_policy.h"
#include "model/token_class.h"

namespace longhaul {

// What stays, each with all that those before it keep: special tokens; punctuation; the most
// attended tokens of the others; the last ones; everything.
enum class RecipeKind : std::uint8_t { kSpecial, kPunctuation, kFrequent, kLocal, kAll };
struct Recipe {
  RecipeKind kind = RecipeKind::kAll;
  std::int64_t n_frequent = 0;  // of kFrequent and kLocal
  std::int64_t n_local = 0;     // of kLocal
  bool operator==(const Recipe&) const = default;

  // Whether tokens stay because of the attention that they get.
  bool asks_for_attention() const {
    return kind == RecipeKind::kFrequent || kind == RecipeKind::kLocal;
  }
};

// Of one KV head's tokens, in the order of their positions.
struct AttendedTokens {
  std::span<const TokenClass> classes;  // [n_tokens]
  // [n_tokens] what the text's queries gave each token, added up over queries and query heads.
  std::span<const double> masses;
  // [n_tokens] the part of it that came from queries in whose local window it was (find_recipe
  // alone asks).
  std::span<const double> local_masses = {};
};

// How many last tokens, its own included, are local to the query at `position`: a share of the
// tokens up to there, rounded down, but its own at least.
std::int64_t local_window(const Recover& recover, std::int64_t position);

// The first kind in their order that recovers at least `recover.threshold` of the attention of a
// text that has these tokens. Numbers of tokens are shares of the text's, rounded down. What a kind
// recovers is the mean over queries of the attention that went to tokens which it keeps for them;
// in local windows, to those of the query's own window. (The distance of attention maps in the
// paper's equation 2, as half of the sum of absolute differences, is 1 less that.)
Recipe find_recipe(const Recover& recover, const AttendedTokens& text);

// What find_recipe recovers with a kind, for tests.
double recovered(const Recover& recover, RecipeKind kind, const AttendedTokens& text);

// The tokens that stay by a recipe: ascending indices. Frequent ones are those with the highest
// masses of all that nothing else keeps, of equal ones the lower position (H2O).
std::vector<std::int64_t> tokens_of(const Recipe& recipe, const AttendedTokens& tokens);

}  // namespace longhaul
