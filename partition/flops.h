// Floating-point operations of a decoder layer, from its dimensions. A multiply and an add count as
// two. Pure.
#pragma once

#include "base/ids.h"
#include "model/heads/kept_blocks.h"
#include "model/model_spec.h"

namespace longhaul {

// Projections and FFN of one token in one layer.
double linear_flops_per_token(const ModelSpec& spec);
// One query head against one key: q . k and the weighted sum of v.
double attention_flops_per_key(const ModelSpec& spec);

// Pairs (query, key) that a head with this rule sees, for queries at positions `tokens`.
double visible_keys(const KeyWindow& kept, Extent tokens);
// Of them, those with the key before the first query's position: the history's part.
double visible_history_keys(const KeyWindow& kept, Extent tokens);

}  // namespace longhaul
