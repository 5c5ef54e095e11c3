// Sets of allowed tokens as bytes, in the shorter of two ways: a list of the ids, or a bit for each
// id.
#pragma once
#include "cluster/wire/bytes.h"
#include "cluster/wire/step.h"

namespace longhaul {

void write(ByteWriter& out, const AllowedTokens& tokens);
// Throws kCorruptData.
AllowedTokens read_allowed_tokens(ByteReader& in);

}  // namespace longhaul
