#include "tools/doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text_columns.h"

namespace longhaul {
namespace {

constexpr std::size_t kTextColumn = 20;

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
                        wrapped_text(finding.text, {.indent = kTextColumn}));
    for (const auto& [word, said] :
         {std::pair("why:", finding.why), std::pair("mend:", finding.mend)}) {
      if (!said.empty())
        text += fmt::format("{:>{}}{:<6}{}\n", "", kTextColumn, word,
                            wrapped_text(said, {.indent = kTextColumn + 6}));
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
