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
    require(!tokens.empty(), fmt::format("{}: no text in it", path.string()));
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

// Returns whether it came to the end.
bool NeedleRunner::prefill(StepRunner& steps, const PlannedDocument& planned,
                           const Haystack& document, NeedleReading& reading) {
  const Stopwatch watch;
  steps.run(OpenSequence{.sequence = kDocument, .sampling = {}});
  for (auto left = std::span(document.tokens); !left.empty();) {
    if (args_.stop_requested()) return false;
    const auto chunk_len = static_cast<std::size_t>(args_.model.flags().chunk_len);
    const auto chunk = left.first(std::min(left.size(), chunk_len));
    left = left.subspan(chunk.size());
    const StepDone done =
        steps.run(PrefillChunk{.sequence = kDocument, .tokens = {chunk.begin(), chunk.end()}});
    reading.kv_bytes = done.kv_bytes_in_use;
    const std::size_t n_read = document.tokens.size() - left.size();
    args_.on_progress(fmt::format("document {} of {} tokens: read {} in {:.0f} s", planned.number,
                                  planned.length, n_read, watch.seconds()));
  }
  reading.prefill_seconds = watch.seconds();
  return true;
}

bool NeedleRunner::is_answered(std::span<const std::int32_t> tokens) const {
  if (args_.model.is_end(tokens.back())) return true;
  if (static_cast<std::int64_t>(tokens.size()) >= args_.max_answer_tokens) return true;
  const std::string text = args_.model.tokenizer().decode(tokens);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text.find('\n', first) != std::string::npos;
}

std::vector<std::string> NeedleRunner::ask(StepRunner& steps,
                                           std::span<const PlannedNeedle> needles) {
  std::vector<std::vector<std::int32_t>> answers(needles.size());
  std::vector<SequenceId> open;
  DecodeBatch batch;
  const auto take = [&](const PickedToken& picked) {
    auto& answer = answers[static_cast<std::size_t>(picked.sequence.value - kFirstQuestion)];
    answer.push_back(picked.token);
    if (!is_answered(answer)) batch.rows.push_back({picked.sequence, picked.token});
  };
  for (std::size_t i = 0; i < needles.size(); ++i) {
    const SequenceId id{kFirstQuestion + static_cast<std::int64_t>(i)};
    steps.run(ForkSequence{.parent = kDocument, .child = id, .sampling = {}});
    open.push_back(id);
    const auto question = args_.model.encode(fill_template(args_.texts.question, needles[i].record),
                                             args_.texts.parse_special);
    const StepDone done =
        steps.run(PrefillChunk{.sequence = id, .tokens = question, .after = AfterPrefill::kSample});
    take(done.picked.at(0));
  }
  while (!batch.rows.empty()) {
    const StepDone done = steps.run(batch);
    batch.rows.clear();
    for (const PickedToken& picked : done.picked) take(picked);
  }
  steps.run(DropSequences{.sequences = open});
  std::vector<std::string> texts;
  for (const auto& answer : answers) texts.push_back(args_.model.tokenizer().decode(answer));
  return texts;
}

NeedleRun NeedleRunner::run(const std::string& name, const HeadRoles& roles,
                            std::span<const PlannedDocument> documents) {
  NeedleRun run{.name = name, .roles = roles};
  for (const PlannedDocument& planned : documents) {
    // A new worker for each document: it gives all memory back.
    StepRunner steps(args_.model.worker_config(roles));
    const Haystack document = make_document(planned);
    NeedleReading reading{.length = planned.length, .document = planned.number};
    if (!prefill(steps, planned, document, reading)) return run;
    const Stopwatch watch;
    const std::span<const PlannedNeedle> needles = planned.needles;
    for (std::size_t begin = 0; begin < needles.size();) {
      const auto group = needles.subspan(
          begin, std::min(needles.size() - begin, static_cast<std::size_t>(args_.n_parallel)));
      const std::vector<std::string> answers = ask(steps, group);
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
    reading.answer_seconds = watch.seconds();
    run.readings.push_back(reading);
  }
  return run;
}

}  // namespace longhaul
