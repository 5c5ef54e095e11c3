#include "tools/eval/step_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

// The prompt's tokens [begin, end).
PrefillChunk chunk_of(const StepPrompt& prompt, std::int64_t begin, std::int64_t end) {
  const auto tokens =
      prompt.tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  const bool is_last = end == static_cast<std::int64_t>(prompt.tokens.size());
  return {.sequence = prompt.sequence,
          .tokens = {tokens.begin(), tokens.end()},
          .after = is_last ? prompt.after : AfterPrefill::kNothing,
          .score_logprobs = prompt.score_logprobs};
}

}  // namespace

StepResult StepRunner::receive() { return link_.receive(deadline_in(config_.step_timeout)); }

// Throws what the result says.
StepDone StepRunner::checked(StepResult result) const {
  if (const auto* failed = std::get_if<StepFailed>(&result))
    throw Error(failed->code, failed->message);
  StepDone done = std::get<StepDone>(std::move(result));
  if (config_.kv_limit_bytes && done.kv_bytes_in_use > *config_.kv_limit_bytes) {
    throw Error(ErrorCode::kOutOfMemory,
                fmt::format("the KV caches of all ranks take {} bytes, more than the limit of {}",
                            done.kv_bytes_in_use, *config_.kv_limit_bytes));
  }
  return done;
}

// The oldest result of so many. Where it is a failure, the steps behind it fail for its sake:
// nobody else may take their answers for his own.
StepDone StepRunner::receive_one_of(std::size_t n_under_way) {
  StepResult result = receive();
  try {
    return checked(std::move(result));
  } catch (const Error&) {
    for (std::size_t i = 1; i < n_under_way; ++i) static_cast<void>(receive());
    throw;
  }
}

StepDone StepRunner::run(StepCommand command) {
  link_.send(std::move(command));
  return receive_one_of(1);
}

std::int64_t StepRunner::prefill(const StepPrompt& prompt, const OnChunk& on_chunk) {
  const auto n_tokens = static_cast<std::int64_t>(prompt.tokens.size());
  require(n_tokens > 0, "a prompt without tokens");
  std::deque<std::int64_t> under_way;  // where each chunk ends
  std::int64_t n_sent = 0;
  std::int64_t n_read = 0;
  bool goes_on = true;
  const auto may_send = [&] {
    return goes_on && n_sent < n_tokens &&
           under_way.size() < std::max<std::size_t>(1, config_.n_ahead);
  };
  while (may_send() || !under_way.empty()) {
    while (may_send()) {
      const std::int64_t end = std::min(n_tokens, n_sent + config_.chunk_len);
      link_.send(chunk_of(prompt, n_sent, end));
      under_way.push_back(end);
      n_sent = end;
    }
    const std::int64_t end = under_way.front();
    under_way.pop_front();
    const StepDone done = receive_one_of(1 + under_way.size());
    n_read = end;
    goes_on = on_chunk(done, n_read) && goes_on;
  }
  return n_read;
}

StepDone StepRunner::prefill(const StepPrompt& prompt) {
  StepDone last;
  prefill(prompt, [&](const StepDone& done, std::int64_t) {
    last = done;
    return true;
  });
  return last;
}

}  // namespace longhaul
