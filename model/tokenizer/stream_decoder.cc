// StreamDecoder of tokenizer.h: text of ids as they come, never in the middle of a character.
#include "model/tokenizer/decoder.h"
#include "model/tokenizer/tokenizer_impl.h"

namespace longhaul {

struct StreamDecoder::State {
  const Tokenizer::Impl* tokenizer;
  bool skip_special;
  tokenization::DecoderRun run;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : state_(new State{tokenizer.impl_.get(), skip_special,
                       tokenization::DecoderRun(tokenizer.impl_->parts.decoder)}) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(std::int32_t id) {
  std::string text;
  if (state_->tokenizer->is_text(id, state_->skip_special))
    state_->run.push(state_->tokenizer->parts.decoder_text(id), text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  state_->run.finish(text);
  return text;
}

}  // namespace longhaul
