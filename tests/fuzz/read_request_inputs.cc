// The reader of requests (read_inputs.h).
#include "base/error.h"
#include "coordinator/requests.h"
#include "tests/fuzz/read_inputs.h"

namespace longhaul::test {

// The reader gives all problems of a file at once; here the first one is thrown.
void read_requests(std::string_view bytes) {
  const ParsedRequests parsed = parse_requests(bytes, kInputName);
  for (const Problem& problem : parsed.problems) {
    throw Error(ErrorCode::kInvalidArgument, describe(problem, kInputName));
  }
}

}  // namespace longhaul::test
