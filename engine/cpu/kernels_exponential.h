// The exponential function of kernels_vector.h: our own polynomial, the same bits in every table.
// Owner: engine/cpu, private to it. The formula and its error: kernels_portable.cpp.
#pragma once

#include "engine/cpu/kernels.h"

namespace inferd::engine::cpu {
namespace {

template <class S>
typename S::F exp_polynomial(typename S::F x) {
  using F = typename S::F;
  const F magic = S::set1(12582912.0f);
  const F clamped = S::min(x, S::set1(88.0f));
  const F shifted = S::fma(clamped, S::set1(1.44269504f), magic);
  const F n = S::sub(shifted, magic);
  F r = S::fma(n, S::set1(-0.693359375f), clamped);
  r = S::fma(n, S::set1(2.12194440e-4f), r);
  F p = S::set1(1.0f / 720);
  p = S::fma(p, r, S::set1(1.0f / 120));
  p = S::fma(p, r, S::set1(1.0f / 24));
  p = S::fma(p, r, S::set1(1.0f / 6));
  p = S::fma(p, r, S::set1(0.5f));
  p = S::fma(p, r, S::set1(1.0f));
  p = S::fma(p, r, S::set1(1.0f));
  return S::keep_if_ge(S::scale_by_power(p, shifted), x, S::set1(-80.0f));
}

// One lane of the above, for single numbers.
template <class S>
float exp_one(float x) {
  float lanes[S::kLanes];
  S::store(lanes, exp_polynomial<S>(S::set1(x)));
  return lanes[0];
}

}  // namespace
}  // namespace inferd::engine::cpu
