// The lines of the results and errors files, in the form of OpenAI's Batch service. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "coordinator/answer.h"
#include "coordinator/preparation.h"
#include "coordinator/requests.h"

namespace longhaul {

// What makes a finished line belong to a request: also when its line number changed.
struct RequestIdentity {
  std::string custom_id;
  std::string body_sha256;
  std::string documents_sha256;  // "" without documents
  bool operator==(const RequestIdentity&) const = default;
};

struct ResultLine {
  const RequestIdentity* identity = nullptr;
  const PreparedRequest* prepared = nullptr;
  const std::vector<Answer>* answers = nullptr;  // all that were made
  std::string_view model;
  std::string_view system_fingerprint;
  std::int64_t created = 0;  // Unix time
};
// One line with its line break. Its last member, longhaul.line_sha256, is the SHA-256 of the line
// as it would be without that member.
std::string result_line(const ResultLine& parts);
std::string error_line(const RequestIdentity& identity, std::string_view code,
                       std::string_view message);

// A line with its line break: these members, and as the last one "longhaul", which says whose line
// it is and ends with its checksum.
std::string sealed_line(JsonObject members, const RequestIdentity& identity);

// A line of the requests file that was skipped.
std::string bad_line_record(const Problem& problem);
bool is_bad_line_record(std::string_view line);

// The identity that a line of either file carries; throws kCorruptData when it is no such line.
RequestIdentity identity_of_line(std::string_view line, std::string_view source);

// Whether a line of the errors file says that memory was short: which has to do with the machine
// and what else ran on it, and may be over.
bool is_for_want_of_memory(std::string_view line);

enum class LineState {
  kAsWritten,
  kEdited,      // its checksum is of another text
  kUnverified,  // it has none: it was written by an early release
};
// Of a line without its line break that identity_of_line takes.
LineState state_of_line(std::string_view line);

}  // namespace longhaul
