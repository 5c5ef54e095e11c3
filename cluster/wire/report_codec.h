// What ranks tell of themselves, as bytes; heartbeats (codec.h) are of these.
#pragma once
#include "cluster/wire/bytes.h"
#include "cluster/wire/phase.h"
#include "cluster/wire/step.h"

namespace longhaul {

void write(ByteWriter& out, const RankReport& report);
void write(ByteWriter& out, const PhaseReport& phase);
// Throw kCorruptData.
RankReport read_report(ByteReader& in);
PhaseReport read_phase(ByteReader& in);

}  // namespace longhaul
