// Text to token ids and back, as tokenizer.json (Hugging Face tokenizers) defines it: BPE of both
// families, byte-level with pre-tokenizer patterns (GPT-2, Llama 3, Qwen2, ...) and
// SentencePiece-style with byte fallback. Immutable after loading; all const calls may run on any
// number of threads at once.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

// Half-open, in bytes of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct EncodeOptions {
  // What the post-processor of tokenizer.json adds, such as <s> in front. It alone rules:
  // add_bos_token of tokenizer_config.json is not looked at.
  bool add_special_tokens = true;
  // Special tokens written in the text become their ids. Off for documents and prompts by default:
  // text is data.
  bool parse_special = false;
  // With parse_special: where a special token that is written stays text all the same. In order and
  // disjoint; the text must then be valid UTF-8. Must live until encode returns.
  std::span<const TextRange> literal = {};
};

class Tokenizer {
 public:
  // Throws kCorruptData (file, field) or kUnsupported naming the part of tokenizer.json that is not
  // supported.
  static Tokenizer from_file(const std::filesystem::path& tokenizer_json);
  static Tokenizer from_json(std::string_view text, std::string_view source);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Linear in the text. Long texts are cut at places where no token can cross and encoded by
  // `n_threads` threads (0 = all cores); ids do not depend on the number of threads. Invalid UTF-8
  // is taken as U+FFFD per maximal invalid part, as Hugging Face's caller would.
  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {},
                                   int n_threads = 1) const;

  // The text of whole ids; skips special tokens unless told otherwise. Bytes that form no UTF-8
  // become U+FFFD.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = true) const;

  // What one token adds to the text, as raw bytes (may be a part of a character).
  std::string token_bytes(std::int32_t id) const;
  // The token as written in the vocabulary; throws kInvalidArgument outside it.
  std::string_view token_text(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  // A token of the vocabulary that is not special; false also for ids that no token has.
  bool has_text(std::int32_t id) const;
  std::int64_t vocab_size() const;  // one more than the greatest id, added tokens included

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Decodes a growing answer: every push returns the text that is certain now, and never half of a
// UTF-8 character. The concatenation of all pieces and of finish() is decode() of all ids. The
// tokenizer must outlive it. One thread.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  std::string push(std::int32_t id);
  std::string finish();  // what is left; incomplete characters become U+FFFD
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
