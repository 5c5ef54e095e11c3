#include "model/chat/template_files.h"

#include <fmt/format.h>

#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "model/chat/parser.h"

namespace longhaul::chat {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxConfigBytes = std::size_t{64} << 20;

// A byte order mark is the editor's, not the template's.
TemplateText read_template(const fs::path& path) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  std::string text = read_file(path, kMaxTemplateBytes);
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  return {std::move(text), path.string()};
}

// "<s>" or {"content": "<s>", ...}.
std::string special_token(const JsonField& config, std::string_view name) {
  const auto token = config.find(name);
  if (!token) return "";
  return token->json().is_object() ? token->at("content").as_string() : token->as_string();
}

// A text, or [{"name": ..., "template": ...}].
void read_config_templates(const JsonField& field, const std::string& source,
                           TemplateFiles& files) {
  if (field.json().is_string()) {
    files.usual = {field.as_string(), source + ": chat_template"};
    return;
  }
  for (std::size_t i = 0; i < field.size(); ++i) {
    const std::string& name = field.at(i).at("name").as_string();
    TemplateText text{field.at(i).at("template").as_string(),
                      fmt::format("{}: chat_template \"{}\"", source, name)};
    if (name == "default") files.usual = std::move(text);
    if (name == "tool_use") files.with_tools = std::move(text);
  }
}

}  // namespace

TemplateFiles find_templates(const fs::path& model_folder, const fs::path& chosen) {
  TemplateFiles files;
  const fs::path config_path = model_folder / "tokenizer_config.json";
  if (fs::exists(config_path)) {
    const Json json = parse_json(read_file(config_path, kMaxConfigBytes), config_path.string());
    const JsonField config(json, config_path.string());
    files.bos_token = special_token(config, "bos_token");
    files.eos_token = special_token(config, "eos_token");
    if (const auto field = config.find("chat_template"))
      read_config_templates(*field, config_path.string(), files);
  }
  const fs::path own = model_folder / "chat_template.jinja";
  if (!chosen.empty() || fs::exists(own)) {
    files.usual = read_template(chosen.empty() ? own : chosen);
    files.with_tools.reset();
  }
  return files;
}

}  // namespace longhaul::chat
