#include "tools/job/input_errors.h"

#include <fmt/format.h>

#include <system_error>

#include "base/file_wait.h"

namespace longhaul {

std::shared_ptr<const ModelFolder> open_model_folder(const std::string& model,
                                                     const std::filesystem::path& hub_cache) {
  const FileWait wait(FileUse::kReadingBeforeWork, model);
  return read_input(
      [&] { return std::make_shared<const ModelFolder>(find_model_folder(model, hub_cache)); });
}

Tokenizer open_tokenizer(const ModelFolder& folder) {
  const std::filesystem::path path = folder.tokenizer_path();
  const FileWait wait(FileUse::kReadingBeforeWork, path);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{} is not there: Longhaul reads tokenizers of this form only; download "
                    "it beside config.json, or make it with transformers: "
                    "AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)",
                    path.string()));
  }
  return read_input([&] { return Tokenizer::from_file(path); });
}

}  // namespace longhaul
