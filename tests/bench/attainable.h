// What this machine attains at best, measured in the benchmark's own process with the same threads
// and instruction set: the yardstick of every figure.
#pragma once
#include <benchmark/benchmark.h>

namespace longhaul::bench {

struct Attainable {
  double int8_gop_per_s;  // of int8, by VPDPBUSD where the machine has it
  double read_gb_per_s;   // reading memory far larger than the caches
};

// Measured at the first call, with kernel_threads() threads; takes about a second.
const Attainable& attainable();

// With one thread its CPU time counts everywhere, so that a busy machine spoils no figure; with
// more threads wall time.
bool counts_cpu_time();

// Sets the counters Gop/s and of_peak, or GB/s and of_bandwidth, from the work of one iteration.
void report_int8_ops(benchmark::State& state, double operations);
void report_bytes(benchmark::State& state, double bytes);

}  // namespace longhaul::bench
