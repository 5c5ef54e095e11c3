// Requests as users write them: JSON Lines in the form of OpenAI's Batch service, one
// /v1/completions call per line, with `documents` as the one addition. Read strictly: a field that
// would change the answer and is not understood is a problem, never ignored.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace longhaul {

// A text file that stands before the prompt.
struct DocumentRef {
  std::filesystem::path path;         // as written
  std::optional<std::string> sha256;  // lower-case hexadecimal, when the request promises one
  bool operator==(const DocumentRef&) const = default;
};

// Text, or ids that are taken exactly as they are.
using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

// What a request says itself; what it leaves open comes from the defaults of the run.
struct Request {
  std::int64_t line = 0;  // in the requests file, from 1; 0: not from a file
  std::string custom_id;
  std::string body_sha256;  // of the body's canonical text: keys sorted, no spaces
  Prompt prompt;
  std::vector<DocumentRef> documents;
  std::optional<std::int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;  // 0 = off
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  std::int64_t n_logprobs = -1;  // -1: none wanted
  bool echo = false;
};

struct Problem {
  std::int64_t line = 0;
  std::string message;
};
// "requests.jsonl:7: body.top_p: 1.5 is outside [0, 1]"
std::string describe(const Problem& problem, std::string_view source);

struct ParsedRequests {
  std::vector<Request> requests;  // in file order, the faultless ones
  std::vector<Problem> problems;  // in file order, all there are
};

// Reads all lines; empty lines are skipped. No file access: documents are looked at by
// check_documents (coordinator/documents.h). Never throws for what the text holds. A line may have
// 256 MB.
ParsedRequests parse_requests(std::string_view text, std::string_view source);

// Fields of a body that are understood, and those that are accepted without effect; for messages
// and --help.
std::string accepted_body_fields();

}  // namespace longhaul
