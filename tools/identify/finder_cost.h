// What each part of `longhaul identify` computes takes, from dimensions alone: bytes and
// operations. Gates have a file of their own (training_cost.h); here are the finders that need
// forward passes only, and the distance that --target asks for. Pure.
//
// A finder is the dense model's forward pass over its text, one layer at a time over all tokens,
// and a look at how heads attend: of a tile's queries that count their scores with all keys.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/identify/training_cost.h"

namespace longhaul {

enum class IdentifyMethod { kGates, kEcho, kInduction, kRazor, kNeedle, kRepetition };
// All of them, each with its word.
const std::vector<std::pair<std::string, IdentifyMethod>>& identify_methods();
std::string_view word_of(IdentifyMethod method);

// What the ranks do together, each with a text of its own; methods that read the same text are one.
enum class IdentifyPart {
  kTraining,    // a step
  kDistance,    // of --target: a step's forward passes
  kCopies,      // echo, induction, razor: random tokens, repeated
  kNeedle,      // questions about records
  kRepetition,  // a text, written twice
};
IdentifyPart part_of(IdentifyMethod method);
// "a training step of gates", as sentences say it.
std::string_view name_of(IdentifyPart part);

// Of one rank, besides the weights.
struct FinderBytes {
  std::size_t rows = 0;  // hidden states of its tokens, and where they stand
  std::size_t keys = 0;  // of one layer, of the whole text: as attention reads them and as floats
  std::size_t forward = 0;  // a tile's activations
  std::size_t scores = 0;   // of a tile's queries with all keys; what is remembered of every token
  std::size_t scratch = 0;  // on GPUs: what operators take besides their arguments
  std::size_t total() const { return rows + keys + forward + scores + scratch; }
};
// `shape`: n_tokens is the whole text's length, n_answer what its questions and answers take (of
// kNeedle alone); the window is not looked at. `part` is one of the last three.
FinderBytes finder_bytes(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape);
// Multiplications and additions of all ranks together, as TrainingFlops counts them.
double finder_flops(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape);

// Of any part: what one rank needs besides the weights.
std::int64_t bytes_of(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape);
// For people, two to four lines.
std::string describe_cost(IdentifyPart part, const ModelSpec& spec, const TrainingShape& shape);

}  // namespace longhaul
