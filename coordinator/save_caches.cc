#include "coordinator/save_caches.h"

#include <string_view>
#include <utility>

#include "base/sha256.h"

namespace longhaul {

SaveSequence save_command(const SaveCaches& save, SequenceId sequence,
                          std::vector<std::int32_t> tokens) {
  Sha256 hash;
  hash.add(save.identity);
  hash.add({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(std::int32_t)});
  std::string content_id = hash.finish();
  SaveSequence command{.sequence = sequence,
                       .folder = save.folder,
                       .name = "doc-" + content_id.substr(0, 16),
                       .tokens = std::move(tokens),
                       .facts = save.facts};
  command.facts.push_back({"content_id", std::move(content_id)});
  return command;
}

}  // namespace longhaul
