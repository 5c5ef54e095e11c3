#include "tools/job/chat_setup.h"

#include <fmt/format.h>

#include <ctime>

#include "base/error.h"
#include "model/chat/template_files.h"
#include "tools/job/input_errors.h"

namespace longhaul {
namespace {

std::tm local_time(std::int64_t started) {
  const std::time_t time = started > 0 ? static_cast<std::time_t>(started) : std::time(nullptr);
  std::tm local{};
  ::localtime_r(&time, &local);
  return local;
}

}  // namespace

void set_up_chat(const std::filesystem::path& model_folder, const ChatConfig& config,
                 PreparationConfig& preparation) {
  try {
    chat::TemplateFiles files =
        read_input([&] { return chat::find_templates(model_folder, config.chat_template); });
    if (!files.usual) {
      preparation.no_chat_reason = fmt::format(
          "the model {} has no chat template: give one with --chat-template FILE, or use "
          "/v1/completions with the whole text in `prompt`",
          model_folder.string());
      return;
    }
    const auto parsed = [](const chat::TemplateText& file) {
      return read_input([&] { return chat::ChatTemplate::parse(file.text, file.source); });
    };
    auto setup = std::make_shared<ChatSetup>(ChatSetup{.usual = parsed(*files.usual),
                                                       .with_tools = nullptr,
                                                       .bos_token = std::move(files.bos_token),
                                                       .eos_token = std::move(files.eos_token),
                                                       .now = local_time(config.started)});
    if (files.with_tools) {
      setup->with_tools = std::make_shared<const chat::ChatTemplate>(parsed(*files.with_tools));
    }
    preparation.chat = std::move(setup);
  } catch (const Error& error) {
    if (!config.chat_template.empty()) throw;
    preparation.has_broken_template = true;
    preparation.no_chat_reason =
        fmt::format("{}; give another template with --chat-template FILE", error.what());
  }
}

}  // namespace longhaul
