// The documents that requests name: found, hashed and checked before any work, and requests grouped
// by the documents that they share.
#pragma once
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/document_text.h"
#include "coordinator/requests.h"

namespace longhaul {

// Requests with the same list of documents, which is prefilled once for all of them. Documents with
// the same text are the same, whatever their files are called.
struct RequestGroup {
  // As the first request names them, paths resolved, each with the SHA-256 that it had when it was
  // checked; empty: no documents.
  std::vector<DocumentRef> documents;
  std::size_t n_bytes = 0;            // of the documents
  std::vector<std::size_t> requests;  // indices, in file order
  // Others with the same documents, which are not to be run: an earlier run ended them. What is
  // shared with them stays as it was, so that what was saved of it is still of use.
  std::vector<std::size_t> ended = {};
};

struct CheckedDocuments {
  // Of each request: SHA-256 over its documents' contents, "" without documents.
  std::vector<std::string> digests;
  std::vector<std::size_t> n_bytes;  // of each request's documents together
  // Missing, unreadable, no text, another SHA-256 than promised.
  std::vector<Problem> problems;
  std::vector<Problem> warnings;  // such as empty documents; each file is named once
  std::unordered_map<std::string, std::string> sha256_of_file;  // by resolved path
};

// Reads every document once. Relative paths start at `folder`. Throws kIo when the machine fails
// (no more open files, a broken disk), kTimeout when a document does not come, kCancelled when a
// stop was asked for.
CheckedDocuments check_documents(const std::vector<Request>& requests,
                                 const std::filesystem::path& folder,
                                 const TextLimits& limits = {});

// Groups in the order of their first request. `chosen` are the indices of the requests to be run.
// Requests without documents come in groups of bounded size.
std::vector<RequestGroup> group_by_documents(const std::vector<Request>& requests,
                                             const std::vector<std::size_t>& chosen,
                                             const CheckedDocuments& checked,
                                             const std::filesystem::path& folder);

}  // namespace longhaul
