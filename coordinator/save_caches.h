// Which files a document's caches are saved to, and which ones they can come from: the name says
// what is in them. Pure.
#pragma once
#include <cstdint>
#include <span>
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
// What the name of such a document is made of.
std::string content_id_of(const std::string& identity, std::span<const std::int32_t> tokens);
std::string name_of_document(const std::string& content_id);

// Saved caches that a document begins with.
struct SavedStart {
  std::string folder;
  std::string name;
  std::string content_id;
  std::int64_t n_tokens = 0;  // at most the document's
  bool converts = false;      // their types are not the run's
  // What happens when they cannot be used after all: the run ends with the reason, or the next
  // ones are tried and at last the document is read from its beginning.
  bool must_work = false;
  // Of a checkpoint: tokens that the run which saved it had read when it ended.
  std::int64_t n_computed = 0;

  std::string path() const { return folder + "/" + name + ".h5"; }
};

}  // namespace longhaul
