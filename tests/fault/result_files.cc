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

std::map<std::string, std::string> texts_of(const std::filesystem::path& path) {
  std::map<std::string, std::string> texts;
  const std::string all = read_file(path, 1 << 24);
  EXPECT_TRUE(all.ends_with('\n'));
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = all.find('\n', begin);
    const Json line = parse_json(std::string_view(all).substr(begin, end - begin), path.string());
    const JsonField root(line, path.string());
    const std::string id = root.at("custom_id").as_string();
    const JsonField choices = root.at("response").at("body").at("choices");
    std::string text = choices.at(0).at("text").as_string();
    for (std::size_t i = 1; i < choices.size(); ++i)
      text += "\n--\n" + choices.at(i).at("text").as_string();
    EXPECT_TRUE(texts.emplace(id, text).second) << id << " comes twice";
    begin = end + 1;
  }
  return texts;
}

}  // namespace longhaul::test
