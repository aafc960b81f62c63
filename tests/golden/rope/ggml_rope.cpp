// Prints what llama.cpp's rotary embedding makes of each pair: its angle at position 1, and its length, of vectors
// of length 1. Arguments: rotated values, original context, base, factor, extrapolation factor, attention factor,
// fast and slow turns. Built and run by make_rope.py.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "ggml-cpu.h"
#include "ggml.h"

int main(int, char** arguments) {
  const int rotated = std::atoi(arguments[1]);
  const auto number = [&](int index) { return static_cast<float>(std::atof(arguments[index])); };
  ggml_context* context = ggml_init({16 << 20, nullptr, false});
  ggml_tensor* pairs = ggml_new_tensor_3d(context, GGML_TYPE_F32, rotated, 1, 1);
  ggml_tensor* position = ggml_new_tensor_1d(context, GGML_TYPE_I32, 1);
  for (int i = 0; i < rotated; ++i) ggml_get_data_f32(pairs)[i] = i % 2 == 0 ? 1.0f : 0.0f;
  static_cast<int32_t*>(position->data)[0] = 1;
  ggml_tensor* turned =
      ggml_rope_ext(context, pairs, position, nullptr, rotated, GGML_ROPE_TYPE_NORMAL, std::atoi(arguments[2]),
                    number(3), 1.0f / number(4), number(5), number(6), number(7), number(8));
  ggml_cgraph* graph = ggml_new_graph(context);
  ggml_build_forward_expand(graph, turned);
  ggml_graph_compute_with_ctx(context, graph, 1);
  const float* values = ggml_get_data_f32(turned);
  for (int i = 0; i < rotated; i += 2) {
    std::printf("%.9g %.9g\n", std::atan2(double(values[i + 1]), double(values[i])),
                std::hypot(double(values[i]), double(values[i + 1])));
  }
}
