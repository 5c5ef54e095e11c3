#include "model/heads/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace longhaul {
namespace {

constexpr std::array kKinds = {RecipeKind::kSpecial, RecipeKind::kPunctuation,
                               RecipeKind::kFrequent, RecipeKind::kLocal, RecipeKind::kAll};

std::int64_t share_of(double share, std::int64_t n) {
  return static_cast<std::int64_t>(share * static_cast<double>(n));
}

Recipe recipe_of(const Recover& recover, RecipeKind kind, std::int64_t n_tokens) {
  Recipe recipe{.kind = kind};
  if (kind == RecipeKind::kFrequent || kind == RecipeKind::kLocal)
    recipe.n_frequent = share_of(recover.frequent, n_tokens);
  if (kind == RecipeKind::kLocal) recipe.n_local = local_window(recover, n_tokens - 1);
  return recipe;
}

bool stays_by_class(TokenClass of_token, RecipeKind kind) {
  switch (of_token) {
    case TokenClass::kSpecial:
      return true;
    case TokenClass::kPunctuation:
      return kind != RecipeKind::kSpecial;
    case TokenClass::kOther:
      return kind == RecipeKind::kAll;
  }
  return false;
}

// Whether each token stays, and whether that is so without its being among the last ones.
struct Stays {
  std::vector<bool> at_all;
  std::vector<bool> for_all_queries;
};

Stays stays_by(const Recipe& recipe, const AttendedTokens& tokens) {
  const std::size_t n = tokens.classes.size();
  require(tokens.masses.size() == n,
          fmt::format("recipe of {} tokens: {} sums of attention", n, tokens.masses.size()));
  Stays stays{std::vector<bool>(n), std::vector<bool>(n)};
  const std::size_t first_local = n - std::min(n, static_cast<std::size_t>(recipe.n_local));
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < n; ++i) {
    stays.for_all_queries[i] = stays_by_class(tokens.classes[i], recipe.kind);
    stays.at_all[i] = stays.for_all_queries[i] || i >= first_local;
    if (!stays.at_all[i]) others.push_back(i);
  }
  const std::size_t n_frequent =
      std::min(others.size(), static_cast<std::size_t>(recipe.n_frequent));
  const auto end = others.begin() + static_cast<std::ptrdiff_t>(n_frequent);
  std::nth_element(others.begin(), end, others.end(), [&](std::size_t a, std::size_t b) {
    return tokens.masses[a] != tokens.masses[b] ? tokens.masses[a] > tokens.masses[b] : a < b;
  });
  for (auto i = others.begin(); i != end; ++i) stays.at_all[*i] = stays.for_all_queries[*i] = true;
  return stays;
}

}  // namespace

std::int64_t local_window(const Recover& recover, std::int64_t position) {
  return std::max<std::int64_t>(1, share_of(recover.local, position + 1));
}

double recovered(const Recover& recover, RecipeKind kind, const AttendedTokens& text) {
  const auto n_tokens = static_cast<std::int64_t>(text.classes.size());
  const Stays stays = stays_by(recipe_of(recover, kind, n_tokens), text);
  require(text.local_masses.size() == text.classes.size(),
          "recipe: sums of attention in local windows are missing");
  double kept = 0;
  double all = 0;
  for (std::size_t i = 0; i < text.classes.size(); ++i) {
    all += text.masses[i];
    if (stays.for_all_queries[i]) {
      kept += text.masses[i];
    } else if (kind == RecipeKind::kLocal) {
      kept += text.local_masses[i];
    }
  }
  return all == 0 ? 1 : kept / all;
}

Recipe find_recipe(const Recover& recover, const AttendedTokens& text) {
  for (const RecipeKind kind : kKinds) {
    if (kind == RecipeKind::kAll || recovered(recover, kind, text) >= recover.threshold)
      return recipe_of(recover, kind, static_cast<std::int64_t>(text.classes.size()));
  }
  return {};
}

std::vector<std::int64_t> tokens_of(const Recipe& recipe, const AttendedTokens& tokens) {
  const Stays stays = stays_by(recipe, tokens);
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < stays.at_all.size(); ++i) {
    if (stays.at_all[i]) kept.push_back(static_cast<std::int64_t>(i));
  }
  return kept;
}

}  // namespace longhaul
