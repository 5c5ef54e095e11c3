#include "tools/doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace longhaul {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kTextColumn = 20;

// `text` from the column on; its own line breaks stay.
std::string wrapped(std::string_view text, std::size_t column) {
  std::string out;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (!out.empty()) out += "\n" + std::string(column, ' ');
    if (column + line.size() <= kWidth) {
      out += line;
      continue;
    }
    std::istringstream words(line);
    std::size_t at = column;
    for (std::string word; words >> word; at += word.size()) {
      if (at > column && at + 1 + word.size() > kWidth) {
        out += "\n" + std::string(column, ' ');
        at = column;
      } else if (at > column) {
        out += ' ';
        ++at;
      }
      out += word;
    }
  }
  return out;
}

std::ptrdiff_t count(const std::vector<Finding>& findings, Health health) {
  return std::count_if(findings.begin(), findings.end(),
                       [&](const Finding& finding) { return finding.health == health; });
}

}  // namespace

std::string_view name_of(Health health) {
  switch (health) {
    case Health::kPass:
      return "PASS";
    case Health::kWarn:
      return "WARN";
    case Health::kFail:
      return "FAIL";
  }
  return "";
}

Health worst_of(const std::vector<Finding>& findings) {
  Health worst = Health::kPass;
  for (const Finding& finding : findings) worst = std::max(worst, finding.health);
  return worst;
}

std::string to_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{}  {:<14}{}\n", name_of(finding.health), finding.check,
                        wrapped(finding.text, kTextColumn));
    for (const auto& [word, said] :
         {std::pair("why:", finding.why), std::pair("mend:", finding.mend)}) {
      if (!said.empty())
        text +=
            fmt::format("{:>{}}{:<6}{}\n", "", kTextColumn, word, wrapped(said, kTextColumn + 6));
    }
  }
  return text + fmt::format("{} passed, {} warned, {} failed\n", count(findings, Health::kPass),
                            count(findings, Health::kWarn), count(findings, Health::kFail));
}

Json to_json(const std::vector<Finding>& findings) {
  JsonArray list;
  for (const Finding& finding : findings) {
    list.push_back(JsonObject{{"result", std::string(name_of(finding.health))},
                              {"check", finding.check},
                              {"text", finding.text},
                              {"why", finding.why},
                              {"mend", finding.mend}});
  }
  return JsonObject{{"result", std::string(name_of(worst_of(findings)))},
                    {"findings", std::move(list)}};
}

}  // namespace longhaul
