// The requests of a batch: read and checked whole before anything is computed, from a file or from
// standard input.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "coordinator/documents.h"
#include "coordinator/preparation.h"
#include "coordinator/requests.h"
#include "coordinator/result_lines.h"

namespace longhaul {

struct InputBatch {
  std::string source;            // for messages: the file's name, or "standard input"
  std::filesystem::path folder;  // that relative paths of documents start at
  std::vector<Request> requests;
  CheckedDocuments documents;  // of these; its own problems are in `problems`
  std::vector<RequestIdentity> identities;
  std::vector<Problem> problems;  // by line
};

// "-" is standard input; documents are then looked for from the current folder. Throws kCorruptData
// when there is nothing to read.
InputBatch read_batch(const std::filesystem::path& input, const TextLimits& texts);

// Conversations need a template; where there is none, each of them is a problem.
void add_missing_templates(const PreparationConfig& preparation, InputBatch& batch);

// Throws kCorruptData with what is wrong where, if anything is.
void refuse_problems(const InputBatch& batch);

// Takes requests with problems out and says so on stderr. Afterwards there is at most one problem
// for each line. Throws as refuse_problems when no request is left.
void skip_bad_lines(InputBatch& batch);

}  // namespace longhaul
