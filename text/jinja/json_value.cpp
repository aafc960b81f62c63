#include "text/jinja/json_value.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "text/jinja/unicode.h"

namespace inferd::jinja {
namespace {

using Json = nlohmann::ordered_json;

class Converter {
 public:
  explicit Converter(Meter* meter) : meter_(meter) {}

  Result<Value> convert(const Json& json, uint32_t depth) {
    if (depth > kNestingMax) {
      return Error(ErrorCode::kResourceExhausted,
                   "the input is nested deeper than " + std::to_string(kNestingMax) + " levels");
    }
    INFERD_TRY(meter_->step());
    switch (json.type()) {
      case Json::value_t::null:
        return Value::none(Origin::kData);
      case Json::value_t::boolean:
        return Value::boolean(json.get<bool>(), Origin::kData);
      case Json::value_t::number_integer:
        return Value::integer(json.get<int64_t>(), Origin::kData);
      case Json::value_t::number_unsigned: {
        const auto number = json.get<uint64_t>();
        if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
          return Error(ErrorCode::kInvalidArgument,
                       "the integer " + std::to_string(number) +
                           " in the input is beyond 64 bits with sign");
        }
        return Value::integer(static_cast<int64_t>(number), Origin::kData);
      }
      case Json::value_t::number_float:
        return Value::real(json.get<double>(), Origin::kData);
      case Json::value_t::string:
        return text(json.get_ref<const std::string&>());
      case Json::value_t::array: {
        std::vector<Value> items;
        items.reserve(json.size());
        for (const Json& item : json) {
          INFERD_ASSIGN(Value value, convert(item, depth + 1));
          items.push_back(std::move(value));
        }
        return make_sequence(meter_, Flavor::kList, std::move(items));
      }
      case Json::value_t::object: {
        auto dict = std::make_shared<DictObject>(meter_);
        for (const auto& [name, item] : json.items()) {
          INFERD_ASSIGN(Value key, text(name));
          INFERD_ASSIGN(Value value, convert(item, depth + 1));
          dict->set(std::move(key), std::move(value));
        }
        return make_dict(std::move(dict));
      }
      default:
        return Error(ErrorCode::kInvalidArgument, "the input has binary data, which is no JSON");
    }
  }

 private:
  Result<Value> text(const std::string& bytes) {
    INFERD_TRY(meter_->expect(bytes.size()));
    if (!is_utf8(bytes)) {
      return Error(ErrorCode::kInvalidArgument, "a string in the input is not valid UTF-8");
    }
    return Value::text(meter_, bytes, Origin::kData);
  }

  Meter* meter_;
};

}  // namespace

Result<Value> value_from_json(Meter* meter, const nlohmann::ordered_json& json) {
  return Converter(meter).convert(json, 1);
}

}  // namespace inferd::jinja
