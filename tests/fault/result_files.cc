#include "tests/fault/result_files.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"

namespace longhaul::test {

std::int64_t count_lines(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return 0;
  const std::string text = read_file(path, 1 << 24);
  return std::count(text.begin(), text.end(), '\n');
}

namespace {

// custom_id -> what `value_of` makes of its choices.
std::map<std::string, std::string> read_lines(const std::filesystem::path& path,
                                              std::string (*value_of)(const JsonField& choices)) {
  std::map<std::string, std::string> values;
  const std::string all = read_file(path, 1 << 24);
  EXPECT_TRUE(all.ends_with('\n'));
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = all.find('\n', begin);
    const Json line = parse_json(std::string_view(all).substr(begin, end - begin), path.string());
    const JsonField root(line, path.string());
    const std::string id = root.at("custom_id").as_string();
    const JsonField choices = root.at("response").at("body").at("choices");
    EXPECT_TRUE(values.emplace(id, value_of(choices)).second) << id << " comes twice";
    begin = end + 1;
  }
  return values;
}

std::string text_in(const JsonField& choices) {
  std::string text = choices.at(0).at("text").as_string();
  for (std::size_t i = 1; i < choices.size(); ++i)
    text += "\n--\n" + choices.at(i).at("text").as_string();
  return text;
}

}  // namespace

std::map<std::string, std::string> texts_of(const std::filesystem::path& path) {
  return read_lines(path, text_in);
}

std::map<std::string, std::string> choices_of(const std::filesystem::path& path) {
  return read_lines(path, [](const JsonField& choices) { return to_text(choices.json()); });
}

}  // namespace longhaul::test
