#include "model/tokenizer/unsupported.h"

#include "base/error.h"

namespace longhaul::tokenization {

void refuse(const JsonField& field, std::string_view reason) {
  try {
    field.fail(reason);  // the field alone knows its source
  } catch (const Error& error) {
    throw Error(ErrorCode::kUnsupported, error.what());
  }
}

}  // namespace longhaul::tokenization
