#include "tools/job/step_events.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/event_log.h"

namespace longhaul {
namespace {

constexpr double kLongWait = 1.0;  // seconds, in one step
constexpr auto kDecodePeriod = std::chrono::seconds(10);

}  // namespace

std::optional<StepCommand> StepEvents::next() {
  log_wait();
  std::optional<StepCommand> command = link_.next();
  kind_ = {};
  n_tokens_ = 0;
  sequence_ = -1;
  if (!command) {
    log_event("coordinator_gone", {}, rank_);
  } else if (const auto* chunk = std::get_if<PrefillChunk>(&*command)) {
    kind_ = "chunk";
    n_tokens_ = static_cast<std::int64_t>(chunk->tokens.size());
    sequence_ = chunk->sequence.value;
  } else if (const auto* batch = std::get_if<DecodeBatch>(&*command)) {
    kind_ = "decode";
    n_tokens_ = static_cast<std::int64_t>(batch->rows.size());
  } else if (const auto* save = std::get_if<SaveSequence>(&*command)) {
    kind_ = "save";
    n_tokens_ = static_cast<std::int64_t>(save->tokens.size());
    sequence_ = save->sequence.value;
  } else if (std::holds_alternative<FinishSave>(*command)) {
    kind_ = "finish_save";
  } else if (const auto* restore = std::get_if<RestoreSequence>(&*command)) {
    kind_ = "restore";
    n_tokens_ = restore->n_tokens;
    sequence_ = restore->sequence.value;
  } else if (std::holds_alternative<Shutdown>(*command)) {
    kind_ = "shutdown";
  }
  return command;
}

void StepEvents::answer(StepResult result) {
  if (const auto* failed = std::get_if<StepFailed>(&result)) {
    log_event("step_failed",
              {{"step", std::string(kind_)}, {"code", std::string(name_of(failed->code))}}, rank_);
  } else if (const auto& done = std::get<StepDone>(result); kind_ == "decode") {
    n_decode_steps_ += 1;
    n_decoded_ += n_tokens_;
    decode_seconds_ += done.seconds;
    if (Clock::now() - decode_logged_ >= kDecodePeriod) log_decoded();
  } else if (!kind_.empty()) {
    log_event(kind_,
              {{"sequence", sequence_},
               {"tokens", n_tokens_},
               {"seconds", done.seconds},
               {"kv_bytes", done.kv_bytes_in_use}},
              rank_);
  }
  link_.answer(std::move(result));
}

void StepEvents::log_wait() {
  const std::optional<RankReport> report = reports_.newest();
  if (!report) return;
  const double waited =
      report->ring_wait_seconds - std::exchange(waited_seconds_, report->ring_wait_seconds);
  if (waited >= kLongWait)
    log_event("ring_wait", {{"step", std::string(kind_)}, {"seconds", waited}}, rank_);
}

void StepEvents::log_decoded() {
  if (n_decode_steps_ == 0) return;
  log_event("decode",
            {{"steps", std::exchange(n_decode_steps_, 0)},
             {"tokens", std::exchange(n_decoded_, 0)},
             {"seconds", std::exchange(decode_seconds_, 0)}},
            rank_);
  decode_logged_ = Clock::now();
}

}  // namespace longhaul
