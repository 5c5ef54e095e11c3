// Values of a ring's ranks, by their positions in it.
#pragma once
#include "base/ids.h"
#include "base/indexed_vector.h"

namespace longhaul {

template <typename T>
using OfRing = IndexedVector<RingPos, T>;

}  // namespace longhaul
