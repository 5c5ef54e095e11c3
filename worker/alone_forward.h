// The forward pass of a rank that has all layers and all keys of its sequences.
#pragma once
#include <vector>

#include "worker/forward.h"
#include "worker/transformer.h"

namespace longhaul {

// Used by one thread; compute and layout must outlive it. Local.
class AloneForward final : public Forward {
 public:
  AloneForward(LayerCompute& compute, const CacheLayout& layout);

  HiddenRows prefill(const ForwardChunk& chunk) override;
  TensorView<const float, 2> decode(std::span<const DecodeRow> rows,
                                    std::span<const std::int32_t> tokens) override;
  void compact(SequenceCache& cache, KeepWhen when) override;
  bool answers() const override { return true; }
  void pick(const TensorView<const float, 2>& hidden, std::span<const LogitsQuestion> questions,
            LogitsReader& reader, std::vector<PickedToken>& answers) override {
    reader.answer(hidden, questions, answers);
  }
  std::vector<PickedToken> gather_scored(Extent, std::vector<PickedToken> own) override {
    return own;
  }
  bool may_be_noted() const override { return true; }
  bool advance() override { return false; }
  void drain() override {}
  TrafficCounters traffic() const override { return {}; }
  std::size_t buffer_bytes() const override { return 0; }

 private:
  LayerCompute& compute_;
  const CacheLayout& layout_;
  std::int64_t n_observed_;  // last queries of a text that are kept
  Transformer transformer_;
  std::vector<BatchSegment> segments_;
};

}  // namespace longhaul
