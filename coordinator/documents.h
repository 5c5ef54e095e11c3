// The documents that requests name: found, hashed and checked before any work, and requests grouped
// by the documents that they share.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "coordinator/requests.h"

namespace longhaul {

// Requests with the same list of documents, which is prefilled once for all of them.
struct RequestGroup {
  std::vector<DocumentRef> documents;  // their paths resolved; empty: no documents
  std::size_t n_bytes = 0;             // of the documents
  std::vector<std::size_t> requests;   // indices, in file order
};

struct CheckedDocuments {
  // Of each request: SHA-256 over its documents' contents, "" without documents.
  std::vector<std::string> digests;
  std::vector<std::size_t> n_bytes;  // of each request's documents together
  std::vector<Problem> problems;     // missing, unreadable, another SHA-256 than promised
};

// Reads every document once. Relative paths start at `folder`.
CheckedDocuments check_documents(const std::vector<Request>& requests,
                                 const std::filesystem::path& folder);

// Groups in the order of their first request. `chosen` are the indices of the requests to be run.
// Requests without documents come in groups of bounded size.
std::vector<RequestGroup> group_by_documents(const std::vector<Request>& requests,
                                             const std::vector<std::size_t>& chosen,
                                             const CheckedDocuments& checked,
                                             const std::filesystem::path& folder);

}  // namespace longhaul
