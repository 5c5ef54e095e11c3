#include "tools/eval/output_files.h"

#include <fmt/format.h>

#include "base/error.h"
#include "coordinator/document_text.h"

namespace longhaul {

MappedFile open_text(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path))
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: there is no such file", path.string()));
  MappedFile file(path);
  if (const auto wrong = why_no_text(file.text())) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} is no text but looks like {}", path.string(), *wrong));
  }
  return file;
}

void check_output_prefix(const std::string& prefix) {
  if (prefix.empty()) return;
  const std::filesystem::path path(prefix);
  require(path.has_filename(),
          fmt::format("--output-prefix {}: a name must follow the folder, such as {}needle", prefix,
                      prefix));
  for (const char* extension : {".json", ".csv", ".svg"}) require_replaceable(prefix + extension);
}

std::string prefix_for(const std::string& prefix, bool is_complete) {
  return prefix.empty() || is_complete ? prefix : prefix + ".partial";
}

std::string partial_note(std::size_t n_done, std::size_t n_asked, std::string_view what) {
  return fmt::format("stopped: {} of {} {}; results are partial, and the next run begins anew\n",
                     n_done, n_asked, what);
}

void write_outputs(const std::string& prefix, const EvalOutputs& outputs) {
  if (prefix.empty()) return;
  replace_file(prefix + ".json", outputs.json);
  replace_file(prefix + ".csv", outputs.csv);
  replace_file(prefix + ".svg", outputs.svg);
}

}  // namespace longhaul
