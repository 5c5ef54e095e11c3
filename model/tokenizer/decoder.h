// tokenizer.json's `decoder`: the texts of tokens to one text. Every stage works on tokens as they
// come, so that one implementation serves whole answers and growing ones.
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "model/tokenizer/pattern.h"

namespace longhaul::tokenization {

struct ReplaceStage {  // in every token; after Fuse in the text as a whole
  Pattern pattern;
  std::string content;
};
struct MetaspaceStage {  // `replacement` becomes a space, in the first token nothing
  Pattern replacement;
  bool prefixed = true;
};
struct StripStage {  // up to `start` and `stop` times `content` at the ends of every token
  std::string content;
  std::size_t start = 0;
  std::size_t stop = 0;
};
struct ByteFallbackStage {};  // runs of <0xAB> become characters, or a U+FFFD per byte
struct FuseStage {};          // all tokens become one
struct ByteLevelStage {};     // GPT-2's alphabet to bytes, all tokens become one
struct JoinStage {};          // no decoder: tokens with a space between
using DecoderStage = std::variant<ReplaceStage, MetaspaceStage, StripStage, ByteFallbackStage,
                                  FuseStage, ByteLevelStage, JoinStage>;

class Decoder {
 public:
  Decoder() : stages_{JoinStage{}} {}
  static Decoder from_json(const JsonField& field);

  const std::vector<DecoderStage>& stages() const { return stages_; }
  // What one token adds in the middle of a text, as bytes.
  std::string bytes_of_token(std::string_view token) const;

 private:
  void add(const JsonField& field);
  std::vector<DecoderStage> stages_;
};

// One text being decoded. One thread; the decoder must outlive it.
class DecoderRun {
 public:
  explicit DecoderRun(const Decoder& decoder);
  // Append to `out` what is certain after this token, and what is left at the end.
  void push(std::string_view token, std::string& out) { feed(0, token, out); }
  void finish(std::string& out);

 private:
  struct State {
    bool fused = false;     // an earlier stage joins all tokens
    bool started = false;   // a token has come
    std::size_t n_cut = 0;  // StripStage after Fuse: what was cut at the front
    std::string pending;    // held back
  };

  void feed(std::size_t at, std::string_view token, std::string& out);
  void run(const ReplaceStage& stage, std::size_t at, std::string_view token, std::string& out);
  void run(const MetaspaceStage& stage, std::size_t at, std::string_view token, std::string& out);
  void run(const StripStage& stage, std::size_t at, std::string_view token, std::string& out);
  void run(const ByteFallbackStage& stage, std::size_t at, std::string_view token,
           std::string& out);
  void run(const FuseStage& stage, std::size_t at, std::string_view token, std::string& out);
  void run(const ByteLevelStage& stage, std::size_t at, std::string_view token, std::string& out);
  void run(const JoinStage& stage, std::size_t at, std::string_view token, std::string& out);
  void strip_fused(const StripStage& stage, std::size_t at, std::string_view text,
                   std::string& out);
  void flush_bytes(std::size_t at, std::string& out);

  const Decoder* decoder_;
  std::vector<State> states_;  // one per stage
};

}  // namespace longhaul::tokenization
