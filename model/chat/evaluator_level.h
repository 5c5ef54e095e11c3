// Counts a step and a level of the evaluator while it lives. For the evaluator's own files.
#pragma once
#include "model/chat/evaluator.h"

namespace longhaul::chat {

class Evaluator::Level {
 public:
  Level(Evaluator& evaluator, int line);
  ~Level() { --evaluator_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Evaluator& evaluator_;
};

}  // namespace longhaul::chat
