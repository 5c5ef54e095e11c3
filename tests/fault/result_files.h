// Results as a user finds them after a run.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace longhaul::test {

std::int64_t count_lines(const std::filesystem::path& path);  // 0 when there is no file

// custom_id -> text of all result lines (of several choices, all of them); adds a test failure for
// an id that comes twice and for a line that is not whole.
std::map<std::string, std::string> texts_of(const std::filesystem::path& path);

// custom_id -> all choices of its result line as JSON: texts and whatever else was asked for.
std::map<std::string, std::string> choices_of(const std::filesystem::path& path);

}  // namespace longhaul::test
