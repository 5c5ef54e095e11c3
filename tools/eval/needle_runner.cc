#include "tools/eval/needle_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "tools/eval/output_files.h"

namespace longhaul {
namespace {

constexpr SequenceId kDocument{0};
constexpr std::int64_t kFirstQuestion = 1;

// At least `n_tokens` tokens of made-up prose. It is encoded in pieces, so that its length in
// tokens need not be guessed.
std::vector<std::int32_t> made_up_hay(const EvalModel& model, std::uint64_t seed,
                                      std::int64_t n_tokens) {
  constexpr std::size_t kPieceCharacters = 1 << 16;
  RandomDraws draws(seed);
  std::vector<std::int32_t> hay;
  while (static_cast<std::int64_t>(hay.size()) < n_tokens) {
    const auto piece = model.encode(made_up_prose(draws, kPieceCharacters) + "\n\n");
    hay.insert(hay.end(), piece.begin(), piece.end());
  }
  return hay;
}

std::vector<std::int32_t> hay_of_files(const EvalModel& model,
                                       const std::vector<std::filesystem::path>& paths) {
  std::vector<std::int32_t> hay;
  for (const std::filesystem::path& path : paths) {
    const MappedFile file = open_text(path);
    const auto tokens = model.encode(file.text());
    if (tokens.empty())
      throw Error(ErrorCode::kCorruptData, fmt::format("{}: no text in it", path.string()));
    hay.insert(hay.end(), tokens.begin(), tokens.end());
  }
  return hay;
}

}  // namespace

NeedleRunner::NeedleRunner(const NeedleRunnerArgs& args, std::int64_t longest)
    : args_(args), start_(args.model.start()) {
  const auto text =
      args.model.encode(fill_template(args.texts.document_start, {}), args.texts.parse_special);
  start_.insert(start_.end(), text.begin(), text.end());
  hay_ = args.texts.haystacks.empty() ? made_up_hay(args.model, args.seed, longest)
                                      : hay_of_files(args.model, args.texts.haystacks);
}

Haystack NeedleRunner::make_document(const PlannedDocument& planned) const {
  std::vector<PlacedNeedle> needles;
  for (const PlannedNeedle& needle : planned.needles) {
    needles.push_back(
        {.depth = needle.depth,
         .tokens = args_.model.encode(fill_template(args_.texts.needle, needle.record),
                                      args_.texts.parse_special)});
  }
  return make_haystack({.start = start_,
                        .hay = hay_,
                        .first_hay = static_cast<std::int64_t>(planned.hay_draw % hay_.size()),
                        .needles = needles,
                        .length = planned.length});
}

void NeedleRunner::check(std::span<const PlannedDocument> documents) const {
  for (const PlannedDocument& document : documents) make_document(document);
}

// Returns whether it came to the end: whole documents count, however late the stop.
bool NeedleRunner::prefill(StepRunner& steps, const PlannedDocument& planned,
                           const Haystack& document, NeedleReading& reading) const {
  const Stopwatch watch;
  const auto n_tokens = static_cast<std::int64_t>(document.tokens.size());
  steps.run(OpenSequence{.sequence = kDocument, .sampling = {}});
  const std::int64_t n_read = steps.prefill(
      {.sequence = kDocument, .tokens = document.tokens, .after = AfterPrefill::kDocumentEnd},
      [&](const StepDone& done, std::int64_t n_done) {
        reading.kv_bytes = done.kv_bytes_in_use;
        args_.on_progress(fmt::format("document {} of {} tokens: read {} in {:.0f} s",
                                      planned.number, planned.length, n_done, watch.seconds()));
        return !args_.stop_requested();
      });
  reading.prefill_seconds = watch.seconds();
  return n_read == n_tokens;
}

std::vector<std::int32_t> NeedleRunner::question_about(const PlannedNeedle& needle) const {
  return args_.model.encode(fill_template(args_.texts.question, needle.record),
                            args_.texts.parse_special);
}

std::int64_t NeedleRunner::tail_tokens(std::span<const PlannedDocument> documents) const {
  std::size_t longest = 0;
  for (const PlannedDocument& document : documents) {
    for (const PlannedNeedle& needle : document.needles)
      longest = std::max(longest, question_about(needle).size());
  }
  return static_cast<std::int64_t>(longest) + args_.max_answer_tokens;
}

bool NeedleRunner::is_answered(std::span<const std::int32_t> tokens) const {
  if (args_.model.is_end(tokens.back())) return true;
  if (static_cast<std::int64_t>(tokens.size()) >= args_.max_answer_tokens) return true;
  const std::string text = args_.model.tokenizer().decode(tokens);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text.find('\n', first) != std::string::npos;
}

// Nothing when it is to stop.
std::vector<std::string> NeedleRunner::ask(StepRunner& steps,
                                           std::span<const PlannedNeedle> needles) const {
  std::vector<std::vector<std::int32_t>> answers(needles.size());
  DropSequences open;
  DecodeBatch batch;
  const auto take = [&](const PickedToken& picked) {
    auto& answer = answers[static_cast<std::size_t>(picked.sequence.value - kFirstQuestion)];
    answer.push_back(picked.token);
    if (!is_answered(answer)) batch.rows.push_back({picked.sequence, picked.token});
  };
  bool goes_on = true;
  for (std::size_t i = 0; i < needles.size() && goes_on; ++i) {
    const SequenceId id{kFirstQuestion + static_cast<std::int64_t>(i)};
    steps.run(ForkSequence{.parent = kDocument, .child = id, .sampling = {}});
    open.sequences.push_back(id);
    const std::vector<std::int32_t> question = question_about(needles[i]);
    const StepDone done =
        steps.prefill({.sequence = id, .tokens = question, .after = AfterPrefill::kSample});
    take(done.picked.at(0));
    goes_on = !args_.stop_requested();
  }
  while (!batch.rows.empty() && goes_on) {
    const StepDone done = steps.run(batch);
    batch.rows.clear();
    for (const PickedToken& picked : done.picked) take(picked);
    goes_on = batch.rows.empty() || !args_.stop_requested();
  }
  steps.run(open);
  if (!goes_on) return {};
  std::vector<std::string> texts;
  for (const auto& answer : answers) texts.push_back(args_.model.tokenizer().decode(answer));
  return texts;
}

// A few questions at a time. Returns whether all were answered.
bool NeedleRunner::ask_all(StepRunner& steps, const PlannedDocument& planned,
                           const Haystack& document, NeedleRun& run) const {
  const std::span<const PlannedNeedle> needles = planned.needles;
  for (std::size_t begin = 0; begin < needles.size();) {
    const auto group = needles.subspan(
        begin, std::min(needles.size() - begin, static_cast<std::size_t>(args_.n_parallel)));
    const std::vector<std::string> answers = ask(steps, group);
    if (answers.empty()) return false;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::string expected = fill_template(args_.texts.answer, group[i].record);
      run.cases.push_back({.length = planned.length,
                           .depth = group[i].depth,
                           .document = planned.number,
                           .position = document.positions[begin + i],
                           .key = group[i].record.key,
                           .expected = expected,
                           .answer = answers[i],
                           .is_right = is_exact_match(answers[i], expected)});
    }
    begin += group.size();
  }
  return true;
}

NeedleRun NeedleRunner::run(StepRunner& steps, const std::string& name, const HeadRoles& roles,
                            std::span<const PlannedDocument> documents) const {
  NeedleRun run{.name = name, .roles = roles};
  for (const PlannedDocument& planned : documents) {
    if (args_.stop_requested()) return run;
    const Haystack document = make_document(planned);
    NeedleReading reading{.length = planned.length, .document = planned.number};
    if (!prefill(steps, planned, document, reading)) return run;
    const Stopwatch watch;
    if (!ask_all(steps, planned, document, run)) return run;
    reading.answer_seconds = watch.seconds();
    steps.run(DropSequences{.sequences = {kDocument}});
    run.readings.push_back(reading);
  }
  return run;
}

}  // namespace longhaul
