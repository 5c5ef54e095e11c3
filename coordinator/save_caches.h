// Which files a document's caches are saved to: the name says what is in them. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/wire/step.h"

namespace longhaul {

struct SaveCaches {
  std::string folder;
  // What caches depend on besides the tokens: model, cache types, roles of the heads.
  std::string identity;
  std::vector<Named<std::string>> facts;  // further ones about model and run, for the file
};

// The command for a document that was read whole. Its content_id, a fact, is the SHA-256 of
// identity and tokens (int32, little-endian); its name is "doc-" and the first 16 digits of that.
SaveSequence save_command(const SaveCaches& save, SequenceId sequence,
                          std::vector<std::int32_t> tokens);

}  // namespace longhaul
