// Documents in which tests look tokens up.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "coordinator/prompt_lookup.h"

namespace longhaul::test {

using Ids = std::vector<std::int32_t>;

inline LookupDocumentRef document_of(const Ids& tokens, LookupDocumentRef before = nullptr) {
  LookupDocument document{std::move(before), TokenIndex(2)};
  document.index.append(tokens);
  return std::make_shared<const LookupDocument>(std::move(document));
}

}  // namespace longhaul::test
