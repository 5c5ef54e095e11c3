// The CPU kernels of one instruction set, as a table of functions over plain structs of raw
// pointers and sizes. Each runs on the calling thread: operators (kernels/cpu/*.cc) split the work
// over threads. Pointers are to floats unless said otherwise; strides count elements.
#pragma once
#include "kernels/cpu/isa/amx_linear.h"
#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/backward.h"
#include "kernels/cpu/isa/fp8_linear.h"
#include "kernels/cpu/isa/int4_linear.h"
#include "kernels/cpu/isa/int8_linear.h"
#include "kernels/cpu/isa/key_scores.h"
#include "kernels/cpu/isa/linear.h"
#include "kernels/cpu/isa/pair_linear.h"
#include "kernels/cpu/isa/probe.h"
#include "kernels/cpu/isa/rows.h"

namespace longhaul::cpu {

struct Kernels {
#define LONGHAUL_KERNEL(result, name, ...) result (*name)(__VA_ARGS__);
#include "kernels/cpu/isa/kernels.def"
};

const Kernels& kernels();  // of active_isa()

}  // namespace longhaul::cpu
