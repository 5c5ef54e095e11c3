// The texts of a needle evaluation: records with made-up names and values, templates for them and
// for the questions, a haystack of made-up prose, and what counts as a right answer. Pure.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tools/eval/random_draws.h"

namespace longhaul {

// What one needle says.
struct NeedleRecord {
  std::string key = {};    // "amber falcon"
  std::string value = {};  // "483920"
};

enum class NameWords { kNeverShared, kMayRepeat };

// `count` records with different keys of two words and values of `n_digits` digits. With
// kNeverShared no two keys have a word in common; throws kInvalidArgument when there are too few
// words for that.
std::vector<NeedleRecord> make_records(RandomDraws& draws, std::size_t count, int n_digits,
                                       NameWords words);

// Where a template has "{key}" and "{value}", the record's; \n and \t in it count as newline and
// tab (a shell has no easy way to write them).
std::string fill_template(std::string_view text, const NeedleRecord& record);

// About n_characters of paragraphs of plain English sentences.
std::string made_up_prose(RandomDraws& draws, std::size_t n_characters);

// Runs of white space become one blank; none is left at either end.
std::string normalised_spaces(std::string_view text);

// Whether the answer's first line is what was expected, apart from white space. Empty lines in
// front of it do not count.
bool is_exact_match(std::string_view answer, std::string_view expected);

}  // namespace longhaul
