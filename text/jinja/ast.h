// The syntax tree of a template. Immutable after parsing; shared by renderings on any thread.
// Owner: text/jinja.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/operators.h"
#include "text/jinja/registry.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

// Names of variables are numbers: Template::names has their text.
using NameId = uint32_t;

enum class ExpressionKind : uint8_t {
  kLiteral,
  kName,
  kList,
  kTuple,
  kDict,
  kNot,
  kNegative,
  kPositive,
  kBinary,
  kAnd,
  kOr,
  kConcatenation,
  kComparison,
  kConditional,
  kAttribute,
  kSubscript,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

struct Expression {
  Expression(ExpressionKind kind_value, uint32_t line_value) : kind(kind_value), line(line_value) {}
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  virtual ~Expression() = default;

  const ExpressionKind kind;
  const uint32_t line;
  uint32_t depth = 1;  // of the tree below, this node included
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct LiteralExpression : Expression {
  LiteralExpression(uint32_t line_value, Value literal)
      : Expression(ExpressionKind::kLiteral, line_value), value(std::move(literal)) {}
  Value value;
};

struct NameExpression : Expression {
  NameExpression(uint32_t line_value, NameId name_id)
      : Expression(ExpressionKind::kName, line_value), name(name_id) {}
  NameId name;
};

// kList, kTuple, kConcatenation: the operands in order. kNot, kNegative, kPositive: one.
// kAnd, kOr: two. kDict: keys and values alternately.
struct OperandsExpression : Expression {
  using Expression::Expression;
  std::vector<ExpressionPtr> operands;
};

struct BinaryExpression : Expression {
  BinaryExpression(uint32_t line_value, BinaryOperator operation)
      : Expression(ExpressionKind::kBinary, line_value), op(operation) {}
  BinaryOperator op;
  ExpressionPtr left;
  ExpressionPtr right;
};

// first op operand op operand …: true if each neighbouring pair compares true.
struct ComparisonExpression : Expression {
  explicit ComparisonExpression(uint32_t line_value)
      : Expression(ExpressionKind::kComparison, line_value) {}
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};

struct ConditionalExpression : Expression {
  explicit ConditionalExpression(uint32_t line_value)
      : Expression(ExpressionKind::kConditional, line_value) {}
  ExpressionPtr test;
  ExpressionPtr then;
  ExpressionPtr otherwise;  // may be null: undefined
};

struct AttributeExpression : Expression {
  explicit AttributeExpression(uint32_t line_value)
      : Expression(ExpressionKind::kAttribute, line_value) {}
  ExpressionPtr object;
  std::string name;
};

struct SubscriptExpression : Expression {
  explicit SubscriptExpression(uint32_t line_value)
      : Expression(ExpressionKind::kSubscript, line_value) {}
  ExpressionPtr object;
  ExpressionPtr index;
};

struct SliceExpression : Expression {
  explicit SliceExpression(uint32_t line_value) : Expression(ExpressionKind::kSlice, line_value) {}
  ExpressionPtr object;
  ExpressionPtr start;  // each may be null
  ExpressionPtr stop;
  ExpressionPtr step;
};

struct ArgumentExpressions {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *expression, or null
  ExpressionPtr more_named;       // **expression, or null
};

struct CallExpression : Expression {
  explicit CallExpression(uint32_t line_value) : Expression(ExpressionKind::kCall, line_value) {}
  ExpressionPtr callee;
  ArgumentExpressions arguments;
};

// input|name(arguments), and input is name(arguments).
struct AppliedExpression : Expression {
  using Expression::Expression;
  ExpressionPtr input;  // null for the text of a filter block or a set block
  std::string name;
  FilterFunction filter = nullptr;  // null: no such filter or test, an error when it is reached
  TestFunction test = nullptr;
  ArgumentExpressions arguments;
};

// What is assigned to.
struct Target {
  enum class Kind : uint8_t { kName, kNamespaceAttribute, kTuple };
  Kind kind = Kind::kName;
  uint32_t line = 0;
  NameId name = 0;
  std::string attribute;
  std::vector<Target> parts;
};

enum class StatementKind : uint8_t {
  kText,
  kOutput,
  kFor,
  kIf,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue,
};

struct Statement {
  Statement(StatementKind kind_value, uint32_t line_value) : kind(kind_value), line(line_value) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  virtual ~Statement() = default;

  const StatementKind kind;
  const uint32_t line;
};
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

struct TextStatement : Statement {
  TextStatement(uint32_t line_value, std::string text_value)
      : Statement(StatementKind::kText, line_value), text(std::move(text_value)) {}
  std::string text;
};

struct OutputStatement : Statement {
  explicit OutputStatement(uint32_t line_value) : Statement(StatementKind::kOutput, line_value) {}
  std::vector<ExpressionPtr> values;
};

struct ForStatement : Statement {
  explicit ForStatement(uint32_t line_value) : Statement(StatementKind::kFor, line_value) {}
  Target target;
  ExpressionPtr items;
  ExpressionPtr test;  // may be null
  bool recursive = false;
  bool uses_loop = false;  // the body mentions the variable `loop`
  Body body;
  Body otherwise;
};

struct IfStatement : Statement {
  explicit IfStatement(uint32_t line_value) : Statement(StatementKind::kIf, line_value) {}
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};

struct SetStatement : Statement {
  explicit SetStatement(uint32_t line_value) : Statement(StatementKind::kSet, line_value) {}
  Target target;
  ExpressionPtr value;
};

// {% set target | filter %}…{% endset %}, and with no target {% filter filter %}…{% endfilter %}.
struct CaptureStatement : Statement {
  using Statement::Statement;
  Target target;
  ExpressionPtr filter;  // null, or a chain whose innermost input is null
  Body body;
};

struct MacroDefinition {
  std::string name;
  std::vector<NameId> parameters;
  std::vector<std::string> parameter_names;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool uses_caller = false;             // the body mentions caller, kwargs, varargs, and they are
  bool uses_kwargs = false;             // no parameters
  bool uses_varargs = false;
  Body body;
};

struct MacroStatement : Statement {
  explicit MacroStatement(uint32_t line_value) : Statement(StatementKind::kMacro, line_value) {}
  NameId name = 0;
  MacroDefinition macro;
};

struct CallBlockStatement : Statement {
  explicit CallBlockStatement(uint32_t line_value)
      : Statement(StatementKind::kCallBlock, line_value) {}
  std::unique_ptr<CallExpression> call;
  MacroDefinition caller;
};

struct WithStatement : Statement {
  explicit WithStatement(uint32_t line_value) : Statement(StatementKind::kWith, line_value) {}
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Body body;
};

// {% generation %}…{% endgeneration %}: a body with variables of its own.
struct ScopeStatement : Statement {
  explicit ScopeStatement(uint32_t line_value) : Statement(StatementKind::kScope, line_value) {}
  Body body;
};

struct Template {
  Body body;
  std::vector<std::string> names;  // by NameId
};

// Names that the interpreter itself sets; the first entries of Template::names.
inline constexpr NameId kNameLoop = 0;
inline constexpr NameId kNameCaller = 1;
inline constexpr NameId kNameKwargs = 2;
inline constexpr NameId kNameVarargs = 3;

}  // namespace inferd::jinja
