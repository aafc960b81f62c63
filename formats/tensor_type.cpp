#include <array>

#include "formats/gguf.h"

namespace inferd::formats {

namespace {

struct Row {
  TensorType type;
  TensorTypeTraits traits;
};

// Block sizes: the GGUF specification. A block of the K types has 256 elements and sub-blocks of 16
// or 32.
constexpr std::array<Row, 11> kReadable{{{TensorType::kF32, {"F32", 1, 4}},
                                         {TensorType::kF16, {"F16", 1, 2}},
                                         {TensorType::kBF16, {"BF16", 1, 2}},
                                         {TensorType::kQ4_0, {"Q4_0", 32, 18}},
                                         {TensorType::kQ4_1, {"Q4_1", 32, 20}},
                                         {TensorType::kQ5_0, {"Q5_0", 32, 22}},
                                         {TensorType::kQ5_1, {"Q5_1", 32, 24}},
                                         {TensorType::kQ8_0, {"Q8_0", 32, 34}},
                                         {TensorType::kQ4_K, {"Q4_K", 256, 144}},
                                         {TensorType::kQ5_K, {"Q5_K", 256, 176}},
                                         {TensorType::kQ6_K, {"Q6_K", 256, 210}}}};

struct Name {
  uint32_t type;
  std::string_view name;
};

// Names of types that files carry and this build does not read, so that a refusal can name them.
constexpr std::array<Name, 24> kOthers{
    {{9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
     {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
     {24, "I8"},      {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},
     {34, "TQ1_0"},   {35, "TQ2_0"}, {39, "MXFP4"},  {40, "NVFP4"}, {4, "Q4_2"},     {5, "Q4_3"}}};

}  // namespace

const TensorTypeTraits* tensor_type_traits(TensorType type) noexcept {
  for (const Row& row : kReadable) {
    if (row.type == type) return &row.traits;
  }
  return nullptr;
}

std::string tensor_type_name(TensorType type) {
  if (const TensorTypeTraits* traits = tensor_type_traits(type)) return std::string(traits->name);
  for (const Name& other : kOthers) {
    if (other.type == static_cast<uint32_t>(type)) return std::string(other.name);
  }
  return "type " + std::to_string(static_cast<uint32_t>(type));
}

}  // namespace inferd::formats
