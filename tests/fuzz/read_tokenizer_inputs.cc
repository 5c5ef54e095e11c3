// The reader of tokenizer.json, with laws that hold for whatever it accepts (read_inputs.h).
#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/fuzz/read_inputs.h"

namespace longhaul::test {

void read_tokenizer(std::string_view bytes) {
  // What a damaged but valid file makes of a text may also be refused, by the field that is to
  // blame; a std::logic_error is a fault of ours, never of the input.
  const Tokenizer tokenizer = Tokenizer::from_json(bytes, kInputName);
  const std::string text =
      "Hello  world, <s> 12345 \xc3\xa9\xe2\x96\x81\xf0\x9f\x98\x80 \xff\xc0 x\n\n\ty";
  const std::int64_t n_ids = tokenizer.vocab_size();
  for (const bool parse_special : {false, true}) {
    const auto ids = tokenizer.encode(text, {.parse_special = parse_special});
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= n_ids) throw std::logic_error("an id outside the vocabulary");
    }
    const std::string whole = tokenizer.decode(ids);
    StreamDecoder decoder(tokenizer);
    std::string pieces;
    for (const std::int32_t id : ids) pieces += decoder.push(id);
    pieces += decoder.finish();
    if (pieces != whole) throw std::logic_error("pieces differ from the whole");
  }
  for (std::int64_t id = 0; id < std::min<std::int64_t>(n_ids, 300); ++id) {
    try {
      tokenizer.token_bytes(static_cast<std::int32_t>(id));
      tokenizer.is_special(static_cast<std::int32_t>(id));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) throw;  // an id that no token has
    }
  }
}

}  // namespace longhaul::test
