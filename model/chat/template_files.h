// Where a model keeps its chat template: chat_template.jinja, or tokenizer_config.json with one
// template or several named ones. Reads files, renders nothing.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace longhaul::chat {

struct TemplateText {
  std::string text;
  std::string source;  // for errors: the file, and the name of one of several
};
struct TemplateFiles {
  std::optional<TemplateText> usual;       // nullopt: the model has none
  std::optional<TemplateText> with_tools;  // "tool_use" of several: for requests with tools
  std::string bos_token;                   // as tokenizer_config.json writes it; "": none
  std::string eos_token;
};

// `chosen`: a file that is used instead of the model's own; empty: none. chat_template.jinja goes
// before tokenizer_config.json, as Hugging Face reads them. Throws kCorruptData or kIo with file
// and reason.
TemplateFiles find_templates(const std::filesystem::path& model_folder,
                             const std::filesystem::path& chosen);

}  // namespace longhaul::chat
