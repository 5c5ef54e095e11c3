// Whatever is wrong with an input (a model, a profile, a plan, a cluster file, requests) ends with
// kExitBadInput, wherever it is read: missing, of a kind that is not read, damaged.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"
#include "model/model_folder.h"
#include "model/tokenizer/tokenizer.h"

namespace longhaul {

// What `read` returns; what it throws about the input comes as kCorruptData. Failures of the
// machine (kIo, kOutOfMemory) stay what they are.
template <typename Read>
auto read_input(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    switch (error.code()) {
      case ErrorCode::kInvalidArgument:
      case ErrorCode::kFailedPrecondition:
      case ErrorCode::kUnsupported:
        throw Error(ErrorCode::kCorruptData, error.what(), error.where());
      default:
        throw;
    }
  }
}

// The folder that `model` names (model/model_folder.h), opened.
std::shared_ptr<const ModelFolder> open_model_folder(const std::string& model,
                                                     const std::filesystem::path& hub_cache);
// Its tokenizer.
Tokenizer open_tokenizer(const ModelFolder& folder);

}  // namespace longhaul
