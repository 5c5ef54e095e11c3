#include "model/chat/names_check.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "model/chat/known_names.h"

namespace longhaul::chat {

void check_called_names(const Syntax& syntax, const ParserState& state) {
  std::set<std::string> defined = {"caller"};
  for (const Statement& statement : syntax.statements) {
    if (statement.kind == StatementKind::kMacro) defined.insert(statement.text);
    for (const std::string& name : statement.target.names) defined.insert(name);
    for (const Parameter& parameter : statement.parameters) defined.insert(parameter.name);
    for (const auto& [target, value] : statement.assignments)
      defined.insert(target.names.begin(), target.names.end());
  }
  for (const Expression& e : syntax.expressions) {
    if (e.kind != ExpressionKind::kCall || e.parts[0]->kind != ExpressionKind::kName) continue;
    const std::string& name = e.parts[0]->name;
    if (is_known_function(name) || defined.contains(name)) continue;
    state.unsupported(fmt::format("the function {}() is not supported", name), e.line);
  }
}

}  // namespace longhaul::chat
