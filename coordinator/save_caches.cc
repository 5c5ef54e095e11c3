#include "coordinator/save_caches.h"

#include <utility>

#include "base/sha256.h"

namespace longhaul {

std::string content_id_of(const std::string& identity, std::span<const std::int32_t> tokens) {
  Sha256 hash;
  hash.add(identity);
  hash.add({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
  return hash.finish();
}

std::string name_of_document(const std::string& content_id) {
  return "doc-" + content_id.substr(0, 16);
}

SaveSequence save_command(const SaveCaches& save, SequenceId sequence,
                          std::vector<std::int32_t> tokens) {
  std::string content_id = content_id_of(save.identity, tokens);
  SaveSequence command{.sequence = sequence,
                       .folder = save.folder,
                       .name = name_of_document(content_id),
                       .tokens = std::move(tokens),
                       .facts = save.facts};
  command.facts.push_back({"content_id", std::move(content_id)});
  return command;
}

}  // namespace longhaul
