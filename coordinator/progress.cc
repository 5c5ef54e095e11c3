#include "coordinator/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/sizes.h"

namespace longhaul {
namespace {

std::string joined(const auto& parts) {
  std::string text;
  for (const auto& part : parts) text += (text.empty() ? "" : "  ") + part.text;
  return text;
}

std::string rate(std::int64_t n, double seconds) {
  return seconds > 0 ? fmt::format(", {}/s", count_text(static_cast<double>(n) / seconds)) : "";
}

}  // namespace

void PrefillCost::add(std::int64_t n_tokens, std::int64_t history, double seconds) {
  const auto x = static_cast<double>(n_tokens);
  const double y = x * (static_cast<double>(history) + x / 2);
  // The error of a step's seconds a token counts for each of its tokens.
  xx_ += x;
  xy_ += y;
  yy_ += y / x * y;
  xs_ += seconds;
  ys_ += y / x * seconds;
}

double PrefillCost::seconds_for(double n_tokens, double history) const {
  if (xx_ == 0) return 0;
  const double determinant = xx_ * yy_ - xy_ * xy_;
  double a = xs_ / xx_;
  double b = 0;
  if (determinant > 1e-9 * xx_ * yy_) {
    b = std::max(0.0, (xx_ * ys_ - xy_ * xs_) / determinant);
    a = (xs_ - b * xy_) / xx_;
    if (a < 0) {
      a = 0;
      b = ys_ / yy_;
    }
  }
  return a * n_tokens + b * n_tokens * (history + n_tokens / 2);
}

void Progress::set_lanes(std::size_t n_lanes) {
  const std::lock_guard lock(mutex_);
  lanes_.resize(n_lanes);
}

void Progress::hand_steps_to(std::function<void(const StepOfRun&)> listener) {
  const std::lock_guard lock(mutex_);
  listener_ = std::move(listener);
}

void Progress::group_prepared(std::vector<std::int64_t> document_lengths, std::size_t lane) {
  const std::lock_guard lock(mutex_);
  if (n_groups_prepared_ >= totals_.group_bytes.size()) return;
  const std::int64_t n_tokens = std::reduce(document_lengths.begin(), document_lengths.end());
  prepared_.push_back({std::move(document_lengths), n_tokens, lane});
  bytes_prepared_ += totals_.group_bytes[n_groups_prepared_++];
  tokens_prepared_ += static_cast<std::size_t>(n_tokens);
}

void Progress::sent(const StepCommand& command, std::size_t lane) {
  const std::lock_guard lock(mutex_);
  if (!lanes_.at(lane).begin) lanes_[lane].begin = now_();
  auto& lengths = lanes_.at(lane).lengths;
  Sent step;
  if (const auto* fork = std::get_if<ForkSequence>(&command)) {
    lengths[fork->child] = lengths[fork->parent];
  } else if (const auto* drop = std::get_if<DropSequences>(&command)) {
    for (const SequenceId sequence : drop->sequences) lengths.erase(sequence);
  } else if (const auto* restore = std::get_if<RestoreSequence>(&command)) {
    lengths[restore->sequence] = restore->n_tokens;
  } else if (const auto* prefill = std::get_if<PrefillChunk>(&command)) {
    std::int64_t& length = lengths[prefill->sequence];
    step = {true, static_cast<std::int64_t>(prefill->tokens.size()), length};
    length += step.n_tokens;
  } else if (const auto* decode = std::get_if<DecodeBatch>(&command)) {
    step.n_tokens = static_cast<std::int64_t>(decode->rows.size());
    for (const DecodeBatch::Row& row : decode->rows) {
      const auto n_guesses = static_cast<std::int64_t>(row.guesses.size());
      std::int64_t& length = lengths[row.sequence];  // guesses included
      length += 1 + n_guesses - row.n_wrong;
      step.history = std::max(step.history, length - n_guesses);
      step.n_guesses += n_guesses;
    }
  }
  lanes_[lane].sent.push_back(step);
}

void Progress::received(const StepResult& result, std::size_t lane) {
  const std::lock_guard lock(mutex_);
  Lane& mine = lanes_.at(lane);
  if (mine.sent.empty()) return;
  const Sent step = mine.sent.front();
  mine.sent.pop_front();
  mine.seconds = std::chrono::duration<double>(now_() - *mine.begin).count();
  const auto* done = std::get_if<StepDone>(&result);
  if (done == nullptr) return;
  mine.kv_bytes = done->kv_bytes_in_use;
  if (step.n_tokens == 0) return;
  if (step.is_prefill) {
    n_prefilled_ += step.n_tokens;
    mine.prefill_seconds += done->seconds;
    cost_.add(step.n_tokens, step.history, done->seconds);
  } else {
    n_decoded_ += std::max(step.n_tokens, static_cast<std::int64_t>(done->picked.size()));
    n_decode_rows_ += step.n_tokens;
    n_guesses_ += step.n_guesses;
    mine.decode_seconds += done->seconds;
  }
  if (listener_) listener_({lane, step.is_prefill, step.n_tokens, step.history, done->seconds});
  of_requests_.steps.add(done->seconds);
  if (!step.is_prefill) of_requests_.between_tokens.add(done->seconds, step.n_tokens);
}

void Progress::drafted(std::int64_t n_guesses, double seconds, std::size_t lane) {
  const std::lock_guard lock(mutex_);
  n_drafted_ += n_guesses;
  draft_seconds_ += seconds;
  lanes_.at(lane).decode_seconds += seconds;
}

void Progress::request_answered(const AnsweredRequest& request) {
  const std::lock_guard lock(mutex_);
  RunFigures& all = of_requests_;
  all.n_prompt_tokens += request.n_prompt_tokens;
  all.n_cached_tokens += request.n_cached_tokens;
  ++all.finish_reasons[request.finish_reason];
  all.queued.add(request.queued_seconds);
  all.first_token.add(request.first_token_seconds);
  all.decode.add(request.seconds - request.first_token_seconds);
  all.whole.add(request.seconds);
}

void Progress::set_running(std::size_t n_requests, std::size_t lane) {
  const std::lock_guard lock(mutex_);
  lanes_.at(lane).n_running = n_requests;
}

void Progress::request_ended(bool ok, std::int64_t n_generated) {
  const std::lock_guard lock(mutex_);
  ++(ok ? n_ok_ : n_failed_);
  n_generated_ += n_generated;
}

void Progress::set_unread(std::vector<Extent> unread, std::size_t lane) {
  const std::lock_guard lock(mutex_);
  lanes_.at(lane).unread = std::move(unread);
}

// Lanes work at the same time: the busiest one says how long it took.
double Progress::seconds_of(double Lane::*kind) const {
  double most = 0;
  for (const Lane& lane : lanes_) most = std::max(most, lane.*kind);
  return most;
}

double Progress::document_tokens_per_byte() const {
  constexpr double kUsual = 0.25;
  if (bytes_prepared_ == 0) return kUsual;
  return static_cast<double>(tokens_prepared_) / static_cast<double>(bytes_prepared_);
}

// Of reading what was read of documents, by the busiest lane.
double Progress::document_seconds() const {
  std::vector<double> seconds(lanes_.size());
  const std::vector<std::int64_t> read = read_locked();
  for (std::size_t group = 0; group < read.size(); ++group) {
    seconds[prepared_[group].lane] += cost_.seconds_for(static_cast<double>(read[group]), 0);
  }
  return *std::max_element(seconds.begin(), seconds.end());
}

// What everything else took: prompts, answers, and what happens between steps.
double Progress::answer_seconds() const {
  return std::max(seconds_of(&Lane::decode_seconds),
                  seconds_of(&Lane::seconds) - document_seconds());
}

double Progress::unread_seconds(const Lane& lane) const {
  double seconds = 0;
  for (const Extent& extent : lane.unread)
    seconds +=
        cost_.seconds_for(static_cast<double>(extent.size()), static_cast<double>(extent.begin));
  return seconds;
}

double Progress::seconds_until_read(const std::vector<std::int64_t>& document_lengths,
                                    std::size_t lane) const {
  const std::lock_guard lock(mutex_);
  double seconds = unread_seconds(lanes_.at(lane));
  for (const std::int64_t length : document_lengths)
    seconds += cost_.seconds_for(static_cast<double>(length), 0);
  return seconds;
}

double Progress::eta_seconds() const {
  const std::lock_guard lock(mutex_);
  return eta_locked();
}

// Tokens read of each prepared group. What a lane has not read whole are, in order, documents of
// groups that it prepared; their lengths say which.
std::vector<std::int64_t> Progress::read_locked() const {
  std::vector<std::int64_t> read;
  for (const Prepared& group : prepared_) read.push_back(group.n_tokens);
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    const std::vector<Extent>& unread = lanes_[lane].unread;
    auto extent = unread.rbegin();
    for (std::size_t group = prepared_.size(); group > 0 && extent != unread.rend(); --group) {
      if (prepared_[group - 1].lane != lane) continue;
      const std::vector<std::int64_t>& documents = prepared_[group - 1].documents;
      for (auto length = documents.rbegin(); length != documents.rend(); ++length) {
        if (extent == unread.rend() || *length != extent->end) continue;
        read[group - 1] -= extent->size();
        ++extent;
      }
    }
  }
  return read;
}

bool Progress::is_read(std::size_t group, const std::vector<std::int64_t>& read) const {
  return group < read.size() && read[group] == prepared_[group].n_tokens;
}

RunFigures Progress::figures(std::size_t most_documents) const {
  const std::lock_guard lock(mutex_);
  RunFigures all = of_requests_;
  const std::vector<std::int64_t> read = read_locked();
  std::vector<std::size_t> shown;  // groups with documents, from the first that is not read
  for (std::size_t i = 0; i < totals_.group_bytes.size(); ++i) {
    if (totals_.group_bytes[i] == 0) continue;
    ++all.n_documents;
    if (is_read(i, read)) ++all.n_documents_read;
    shown.push_back(i);
  }
  const auto n_read = static_cast<std::size_t>(all.n_documents_read);
  if (shown.size() > most_documents) {
    const std::size_t begin = std::min(n_read, shown.size() - most_documents);
    shown = {shown.begin() + static_cast<std::ptrdiff_t>(begin),
             shown.begin() + static_cast<std::ptrdiff_t>(begin + most_documents)};
  }
  for (const std::size_t i : shown) {
    RunFigures::Document document{.group = i, .n_bytes = totals_.group_bytes[i]};
    if (i < read.size()) {
      document.n_tokens = prepared_[i].n_tokens;
      document.n_read = read[i];
    }
    all.documents.push_back(document);
  }
  all.n_requests = totals_.n_requests;
  all.n_ok = n_ok_;
  all.n_failed = n_failed_;
  for (const Lane& lane : lanes_) {
    all.n_running += static_cast<std::int64_t>(lane.n_running);
    all.kv_bytes += lane.kv_bytes;
  }
  all.n_prefilled = n_prefilled_;
  all.n_decoded = n_decoded_;
  all.prefill_seconds = seconds_of(&Lane::prefill_seconds);
  all.decode_seconds = seconds_of(&Lane::decode_seconds);
  all.eta_seconds = n_ok_ + n_failed_ < totals_.n_requests ? eta_locked() : 0;
  return all;
}

double Progress::eta_locked() const {
  if (n_prefilled_ == 0) return -1;
  double seconds = 0;
  for (const Lane& lane : lanes_) seconds += unread_seconds(lane);
  for (std::size_t i = n_groups_prepared_; i < totals_.group_bytes.size(); ++i) {
    const double tokens = document_tokens_per_byte() * static_cast<double>(totals_.group_bytes[i]);
    seconds += cost_.seconds_for(tokens, 0);
  }
  seconds /= static_cast<double>(lanes_.size());
  const std::int64_t n_left = totals_.n_requests - n_ok_ - n_failed_;
  if (n_ok_ > 0) {
    // Requests that are left generate as many tokens as the finished ones did; each has its first
    // from its prompt, and those of requests under way are part of n_decoded_ already.
    const auto n_done = static_cast<double>(n_decoded_ + n_ok_);
    const double per_request =
        static_cast<double>(std::max(n_generated_, n_ok_)) / static_cast<double>(n_ok_);
    const double left = std::max(0.0, per_request * static_cast<double>(n_left + n_ok_) - n_done);
    seconds += left * answer_seconds() / n_done;
  } else if (seconds == 0 && n_left > 0) {
    return -1;  // no request has shown yet what an answer takes
  }
  return seconds;
}

std::vector<Progress::Part> Progress::parts_locked() const {
  std::int64_t n_documents = 0;
  std::int64_t n_read = 0;
  const std::vector<std::int64_t> read = read_locked();
  for (std::size_t i = 0; i < totals_.group_bytes.size(); ++i) {
    if (totals_.group_bytes[i] == 0) continue;
    ++n_documents;
    if (is_read(i, read)) ++n_read;
  }
  std::vector<Part> parts;
  if (n_documents > 0) parts.push_back({fmt::format("documents {}/{}", n_read, n_documents), 3});
  parts.push_back({fmt::format("requests {}/{}{}", n_ok_ + n_failed_, totals_.n_requests,
                               n_failed_ > 0 ? fmt::format(" ({} failed)", n_failed_) : ""),
                   0});
  parts.push_back({fmt::format("prefill {} tokens{}", count_text(static_cast<double>(n_prefilled_)),
                               rate(n_prefilled_, seconds_of(&Lane::prefill_seconds))),
                   2});
  // A rate of a few tokens is noise.
  constexpr std::int64_t kEnough = 16;
  parts.push_back(
      {fmt::format("decode {} tokens{}", count_text(static_cast<double>(n_decoded_)),
                   n_decoded_ < kEnough ? "" : rate(n_decoded_, seconds_of(&Lane::decode_seconds))),
       4});
  if (n_guesses_ > 0) {
    parts.push_back(
        {fmt::format("{:.1f} a step, {} of {} guesses came true",
                     static_cast<double>(n_decoded_) / static_cast<double>(n_decode_rows_),
                     count_text(static_cast<double>(n_decoded_ - n_decode_rows_)),
                     count_text(static_cast<double>(n_guesses_))),
         6});
  }
  if (n_drafted_ > 0) {
    parts.push_back({fmt::format("{} drafted in {:.1f} s",
                                 count_text(static_cast<double>(n_drafted_)), draft_seconds_),
                     7});
  }
  return parts;
}

std::string Progress::line(std::size_t width) const {
  const std::lock_guard lock(mutex_);
  std::vector<Part> parts = parts_locked();
  const double eta = eta_locked();
  if (eta >= 0 && n_ok_ + n_failed_ < totals_.n_requests)
    parts.push_back({"ETA " + duration_text(eta), 1});
  std::size_t kv_bytes = 0;
  for (const Lane& lane : lanes_) kv_bytes += lane.kv_bytes;
  parts.push_back({"kv " + format_byte_size(static_cast<std::int64_t>(kv_bytes)), 5});
  std::string text = joined(parts);
  while (text.size() > width && parts.size() > 1) {
    parts.erase(std::max_element(parts.begin(), parts.end(),
                                 [](const Part& a, const Part& b) { return a.drop < b.drop; }));
    text = joined(parts);
  }
  return text;
}

std::string Progress::summary() const {
  const std::lock_guard lock(mutex_);
  return joined(parts_locked());
}

}  // namespace longhaul
