// LogitRules as bytes.
#pragma once
#include "cluster/wire/bytes.h"
#include "cluster/wire/logit_rules.h"

namespace longhaul {

void write(ByteWriter& out, const LogitRulesRef& rules);
// Throws kCorruptData.
LogitRulesRef read_logit_rules(ByteReader& in);

}  // namespace longhaul
