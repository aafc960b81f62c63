// Whose turn it is: who gets a share of a step first, and who is admitted next.
// Owner: daemon/ makes one and passes it to the scheduler. Engine thread only.
// Must not know pages.
//
// A policy decides about time only. Who may take pages from whom is fixed by the scheduler (by
// age), because the argument that every sequence ends rests on it.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace inferd::scheduler {

// What a policy may know of a sequence.
struct Candidate {
  SequenceId sequence;
  SessionId session;
  UserId user;
  uint64_t arrival = 0;      // number of the submission: lower is older
  uint32_t tokens_left = 0;  // to compute before the next token can be sampled; at least 1
  bool decode = false;       // running, and one token is left
  uint32_t weight = 0;
  int32_t nice = 0;
  uint32_t slot = 0;  // the scheduler's own index; a policy carries it along
};

// What a step did for one sequence.
struct Service {
  SequenceId sequence;
  SessionId session;
  UserId user;
  uint32_t computed_tokens = 0;
  uint32_t generated_tokens = 0;
};

class Policy {
 public:
  virtual ~Policy() = default;

  // Reorders the running sequences: the first is served first, within the step's budget.
  // Allocates nothing. Must be deterministic.
  virtual void order_running(std::span<Candidate> running) = 0;
  // Index of the request to admit next; `waiting` is not empty and ordered by arrival. If that one
  // does not fit, nobody is admitted in this step: a large request is not overtaken for ever by
  // small ones.
  virtual uint32_t next_waiting(std::span<const Candidate> waiting) = 0;
  // Called once per sequence of a committed step.
  virtual void served(const Service& service) = 0;
};

// Decodes before prefills, each by age; admission first come, first served.
class FifoPolicy final : public Policy {
 public:
  void order_running(std::span<Candidate> running) override;
  uint32_t next_waiting(std::span<const Candidate> waiting) override;
  void served(const Service& service) override;
};

}  // namespace inferd::scheduler
