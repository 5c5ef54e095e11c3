// What the coordinator tells the ranks of a replica to do together, and what they answer: the
// vocabulary that coordinator and worker share. Plain values; how they travel is the Link's
// business.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/id_set.h"
#include "base/ids.h"
#include "base/rates.h"
#include "base/work_clock.h"
#include "cluster/wire/logit_rules.h"

namespace longhaul {

// How the next token is picked. temperature <= 0 is greedy and ignores the rest (equal logits: the
// lower id). Otherwise, in llama.cpp's and Hugging Face's order: temperature, then top_k (0 = off),
// top_p (1 = off), min_p (0 = off). The draw depends only on (seed, position of the token), so
// batching, ranks and restarts do not change it.
struct SamplingParams {
  double temperature = 0.0;
  std::int64_t top_k = 0;
  double top_p = 1.0;
  double min_p = 0.0;
  std::uint64_t seed = 0;
  // Where the sequence begins in the text whose draws these are: of a model that reads only the end
  // of it.
  std::int64_t first_position = 0;
  std::int64_t n_logprobs = -1;  // -1: none; n >= 0: of the picked token and the n most likely,
                                 // under the unmodified distribution
};

// The tokens that may be picked, where an answer has a given form; null: all of them. Never empty,
// and no larger than the vocabulary. What is not in it counts as if the model never said it: it is
// taken away before temperature, top_k, top_p and min_p; log-probabilities stay those of the
// unmodified distribution. Each step says it anew, so that ranks keep nothing of it.
using AllowedTokens = std::shared_ptr<const IdSet>;

// A figure or a text with its name, such as {"attend", 12.5} or {"keys", 8192}.
template <typename T>
struct Named {
  std::string name;
  T value{};
};

// --- Commands ---

// A new, empty sequence.
struct OpenSequence {
  SequenceId sequence;
  SamplingParams sampling;
  LogitRulesRef rules = nullptr;
};
// A new sequence that starts with all tokens of `parent`, sharing its cache, and has rules of its
// own.
struct ForkSequence {
  SequenceId parent;
  SequenceId child;
  SamplingParams sampling;
  LogitRulesRef rules = nullptr;
};
// Forgets sequences; their cache blocks are freed when nobody else shares them.
struct DropSequences {
  std::vector<SequenceId> sequences;
};
// What comes after a chunk's last token, so that every rank knows when a text is whole: what is
// decided at the end of a document or of a prompt hangs on it.
enum class AfterPrefill {
  kNothing,      // more chunks of the same text
  kSample,       // the prompt is whole: pick the next token
  kDocumentEnd,  // the document is whole: from here on it is forked
  kPromptEnd,    // the prompt is whole, and nothing is picked: it was only to be read or scored
  kSharedEnd,    // what several texts begin with is whole: it is forked, but no document ends here
};
// Appends tokens to one sequence. With score_logprobs >= 0, the result scores each of them given
// those before it (the sequence's very first token has no score), with that many most likely
// alternatives.
struct PrefillChunk {
  SequenceId sequence;
  std::vector<std::int32_t> tokens;
  AfterPrefill after = AfterPrefill::kNothing;
  std::int64_t score_logprobs = -1;
  AllowedTokens allowed = nullptr;  // of the token that kSample picks
};
// Appends the given token to each sequence and picks the next one: one token for each of many
// sequences. These tokens are the answers, which penalties count.
//
// A row may come with guesses of how its answer goes on. They are appended too, a token is picked
// behind each, and as far as the guesses are what is picked all of it is the answer, as if it had
// taken as many steps (speculative decoding, Leviathan et al. 2023, arXiv 2211.17192; since a draw
// depends on seed and position alone, the answer itself is the same). The sequence holds the wrong
// ones until its next row says how many they were:
//
//   row {token 5, guesses 7 8 9}    picked 7 8 2       7 and 8 came true, 9 did not
//   row {token 2, n_wrong 1}        picked 4
//
// A draft model, which makes guesses for another model and runs on one rank alone, takes its own
// guesses back in the same way:
//
//   kDraft         row {token 5, guesses 7 8}    picked 3    5 7 8 are certain, 3 is a guess
//   kDraftFurther  row {token 3}                 picked 4    3 joins the guesses
//   kDraftFurther  row {token 4}                 picked 6    and 4; the other model says: 3, then 9
//   kDraft         row {token 9, n_wrong 1}      picked 2    4 is forgotten
enum class DecodeKind {
  kAnswer,
  kDraft,         // one token is picked for each row, behind its last, whatever was guessed
  kDraftFurther,  // likewise; the row's one token may be taken back, as its last rows' guesses may
};
struct DecodeBatch {
  struct Row {
    SequenceId sequence;
    std::int32_t token;
    AllowedTokens allowed = nullptr;         // of the next one; null where there are guesses
    std::vector<std::int32_t> guesses = {};  // what may follow the token
    std::int64_t n_wrong = 0;                // of its last row's guesses: forgotten first
  };
  std::vector<Row> rows;
  DecodeKind kind = DecodeKind::kAnswer;
};
// The last command; answered like every other, so that a rank that is lost on its way out is known.
struct Shutdown {};
// Asks every rank what it has done and holds; changes nothing.
struct ReportRank {};
// Asks every rank what its device attains at best at this moment, with the threads that its steps
// take. All ranks measure at the same time: those of one host share its memory. Changes nothing.
struct MeasureRates {
  WorkClock clock = WorkClock::kWall;  // of CPUs
  std::int64_t cpu_read_bytes = 0;     // that each rank reads: far more than caches hold
};
// Writes a sequence's caches to files (docs/kv_files.md): every rank a part, then one rank NAME.h5,
// which presents them as one. Does nothing where NAME.h5 holds the same already. Changes no
// sequence, also when it fails.
struct SaveSequence {
  SequenceId sequence;
  std::string folder;                     // that all ranks of the replica see
  std::string name;                       // of the files in it, without extension
  std::vector<std::int32_t> tokens;       // the sequence's: they are written too
  std::vector<Named<std::string>> facts;  // about model and run: attributes of NAME.h5
  // NAME.h5 that holds a beginning of the tokens is replaced when what came since is whole, else by
  // everything. Files are written beside later commands, until FinishSave.
  bool goes_on = false;
};
// Waits for the files of a SaveSequence that goes on, and makes them the saved ones. Does nothing
// when that failed.
struct FinishSave {};
// A new sequence with the tokens of saved caches, as if they had been prefilled: every rank reads
// what it is home of, whoever wrote it. Drawn from it are forks only, so it has no sampling. When
// it fails nothing was made.
struct RestoreSequence {
  SequenceId sequence;
  std::string folder;         // that all ranks of the replica see
  std::string name;           // of the files in it, without extension
  std::string content_id;     // that they must have
  std::int64_t n_tokens = 0;  // that they must hold
  bool converts = false;      // caches of other types become those of the run
};

using StepCommand =
    std::variant<OpenSequence, ForkSequence, DropSequences, PrefillChunk, DecodeBatch, Shutdown,
                 ReportRank, SaveSequence, MeasureRates, RestoreSequence, FinishSave>;

// --- Results: one for each command, in order ---

struct TokenLogprob {
  std::int32_t token = -1;
  float logprob = 0.0F;  // natural log
};
// A token that was picked, or one of the prompt that was scored.
struct PickedToken {
  SequenceId sequence;
  std::int32_t token = -1;
  float logprob = 0.0F;           // meaningful only when log-probabilities were asked for
  std::vector<TokenLogprob> top;  // descending
};
// What one rank has done since it started, and what it holds now.
struct RankReport {
  Rank rank;
  std::vector<Named<double>> phase_seconds;     // where its time went
  double ring_wait_seconds = 0.0;               // of that: waiting for other ranks
  std::vector<Named<std::int64_t>> sent_bytes;  // by kind of traffic; kinds never sent left out
  std::int64_t weight_bytes = 0;
  std::int64_t kv_retrieval_bytes = 0;  // blocks in use
  std::int64_t kv_streaming_bytes = 0;
  // The most in use at the end of any step: of each kind, and of both at once.
  std::int64_t kv_retrieval_peak_bytes = 0;
  std::int64_t kv_streaming_peak_bytes = 0;
  std::int64_t kv_peak_bytes = 0;
  std::int64_t buffer_bytes = 0;  // activations and ring buffers
};
// What one rank attains.
struct RankRates {
  Rank rank;
  std::int64_t n_threads = 1;  // of its kernels on CPUs
  Rates rates;
};
struct StepDone {
  // In the order of the command's rows; of a row with guesses one more than came true.
  std::vector<PickedToken> picked;
  std::vector<PickedToken>
      scored;  // PrefillChunk with score_logprobs: one per token that has a score
  std::size_t kv_bytes_in_use = 0;  // on all ranks, after the step
  double seconds = 0.0;             // of the slowest rank
  std::vector<RankReport> reports;  // ReportRank: one per rank, by rank
  std::vector<RankRates> rates;     // MeasureRates: one per rank, by rank
};
// The step failed as a whole; the sequences whose caches it was changing are in an undefined state
// and must be dropped. A failed OpenSequence, ForkSequence or RestoreSequence has made nothing:
// there is nothing to drop, and a fork's parent is as it was.
struct StepFailed {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  bool ends_job = false;  // the rank failed outside of steps, and leaves: no request is to blame
};

using StepResult = std::variant<StepDone, StepFailed>;

}  // namespace longhaul
