// A flag whose words stand for values: --history auto|keys|queries.
#pragma once
#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace longhaul {

template <typename T>
using FlagWords = std::vector<std::pair<std::string, T>>;

// `value` holds the default and gets what the user says; it must outlive `app`. Other words are
// refused as CLI11 does it.
template <typename T>
CLI::Option* add_choice(CLI::App& app, const std::string& name, T& value, const FlagWords<T>& words,
                        const std::string& help) {
  std::vector<std::string> names;
  std::string preset;
  for (const auto& [word, meaning] : words) {
    names.push_back(word);
    if (preset.empty() && meaning == value) preset = word;
  }
  return app
      .add_option_function<std::string>(
          name,
          [&value, words](const std::string& said) {
            const auto at = std::find_if(words.begin(), words.end(),
                                         [&](const auto& word) { return word.first == said; });
            if (at != words.end()) value = at->second;
          },
          help)
      ->check(CLI::IsMember(names))
      ->default_str(preset);
}

}  // namespace longhaul
