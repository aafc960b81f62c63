// The patterns are those of the models' own tokenizer.json files, in the reading that llama.cpp gives
// them, since model files name them by llama.cpp's names. Where that reading differs from the
// original's (case classes that became "any letter", digits grouped after the fact), this follows it,
// and a comment says so.
#include "text/pretokenizer_kinds.h"

#include <algorithm>
#include <array>

namespace inferd::text {

namespace {

// Contents of character classes. White space is spelt out because PCRE2's \s also holds U+180E.
#define WS                                                                                   \
  "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}" \
  "\\x{3000}"
#define CJK "\\x{4e00}-\\x{9fa5}"
#define KANA "\\x{3040}-\\x{30ff}"
// U+0800 to U+4E00 without the white space in it, Chinese, Hangul.
#define DEEPSEEK_CJK                                                                        \
  "[" CJK "\\x{800}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}"   \
  "\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define HAN                                                                                  \
  "\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2ebef}"        \
  "\\x{f900}-\\x{faff}\\x{2f800}-\\x{2fa1f}"
#define ASCII_PUNCTUATION "[!-/:-@\\[-`{-~]"

// Pieces of patterns.
#define CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define SMALL_CONTRACTION "'(?:[stmd]|re|ve|ll)"
#define OTHERS " ?[^" WS "\\p{L}\\p{N}]+"
#define LINES "[" WS "]*[\\r\\n]+"
#define SPACES "[" WS "]+(?![^" WS "])|[" WS "]+"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define MARKED_WORD "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+"
// A letter that is no ASCII small (capital) letter: all that is left of the originals' case classes.
#define NOT_SMALL "[^a-z\\P{L}]"
#define NOT_CAPITAL "[^A-Z\\P{L}]"
#define CASED_WORD(tail)                                              \
  "[^\\r\\n\\p{L}\\p{N}]?" NOT_SMALL "*" NOT_CAPITAL "+" tail         \
  "|[^\\r\\n\\p{L}\\p{N}]?" NOT_SMALL "+" NOT_CAPITAL "*" tail
#define MARKED_NOT_SMALL "[^a-z\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"
#define MARKED_NOT_CAPITAL "[^A-Z\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"

constexpr std::string_view kGpt2Words =
    SMALL_CONTRACTION "| ?\\p{L}+| ?\\p{N}+|" OTHERS "|" SPACES;
constexpr std::string_view kLlama3Words =
    CONTRACTION "|" WORD "|\\p{N}{1,3}|" OTHERS "[\\r\\n]*|" LINES "|" SPACES;
constexpr std::string_view kQwen2Words =
    CONTRACTION "|" WORD "|\\p{N}|" OTHERS "[\\r\\n]*|" LINES "|" SPACES;
constexpr std::string_view kDeepseek3Words =
    ASCII_PUNCTUATION "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" SPACES;
constexpr std::string_view kBloomWords =
    " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c}]+";
// Latin, Greek, Cyrillic and further cased scripts, as DeepSeek LLM lists them.
constexpr std::string_view kDeepseekCasedWords =
    "[" WS "]?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
    "Ḁ-ἕ\\x{1f18}-\\x{1f1d}ἠ-ὅ\\x{1f48}-\\x{1f4d}ὐ-ὗ\\x{1f59}\\x{1f5b}\\x{1f5d}"
    "\\x{1f5f}-\\x{1f7d}ᾀ-ᾴᾶ-ᾼ\\x{1fbe}ῂ-ῄῆ-ῌ\\x{1fd0}-\\x{1fd3}ῖ-\\x{1fdb}"
    "ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\\x{2126}ℨ\\x{212a}-\\x{212d}ℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿ"
    "ﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";

constexpr auto kMatches = StepKind::kMatches;

constexpr SplitStep kDefault[] = {{kMatches, "[\\p{P}$+<=>^~|]+"},
                                  {kMatches, kGpt2Words},
                                  {kMatches, "\\p{N}+"},
                                  {kMatches, "[0-9][0-9][0-9]"}};
constexpr SplitStep kLlama3[] = {{kMatches, kLlama3Words}};
constexpr SplitStep kJais2[] = {
    {kMatches, CONTRACTION "|" WORD "|\\p{N}{1,3}|" OTHERS "[\\r\\n]*|" LINES
                           "|[" WS "]{512}(?![^" WS "])|[" WS "]{256}(?![^" WS "])"
                           "|[" WS "]{128}(?![^" WS "])|[" WS "]{64}(?![^" WS "])"
                           "|[" WS "]{32}(?![^" WS "])|[" WS "]{16}(?![^" WS "])"
                           "|[" WS "]{8}(?![^" WS "])|[" WS "]{4}(?![^" WS "])"
                           "|[" WS "]{1,2}(?![^" WS "])|[" WS "]"}};
constexpr SplitStep kDeepseekLlm[] = {
    {kMatches, "[\\r\\n]"},
    {kMatches, kDeepseekCasedWords},
    {kMatches, "[" WS "]?[!-/:-~！-／：-～‘-‟\\x{3001}\\x{3002}]+"},
    {kMatches, "[" WS "]+\\z"},
    {kMatches, DEEPSEEK_CJK},
    {kMatches, "\\p{N}+"}};
constexpr SplitStep kDeepseek3[] = {{kMatches, "\\p{N}{1,3}"},
                                    {kMatches, "[" CJK KANA "]+"},
                                    {kMatches, kDeepseek3Words}};
constexpr SplitStep kSpark25[] = {
    {kMatches, "\\p{N}{1,3}"},
    {kMatches, "[" CJK KANA "]+"},
    {kMatches, ASCII_PUNCTUATION "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                                 "| ?[\\p{P}\\p{S}]+|[\\r\\n]|" SPACES},
    {kMatches, "\\p{N}"}};
constexpr SplitStep kYoutu[] = {
    {kMatches, "[가-힣\\x{3131}-\\x{318e}]+|[！…“”‘’—：；，\\x{3001}-\\x{303f}︰-﹏]+"
               "|[\\x{3105}-\\x{312f}]+|[" CJK KANA "]+"},
    // The original asks for capitals before small letters; the reading has any letter there.
    {kMatches, MARKED_WORD "(?:" CONTRACTION ")?|\\p{N}|" OTHERS "[\\r\\n/]*|" LINES "|" SPACES}};
constexpr SplitStep kDeepseekCoder[] = {{kMatches, "[\\r\\n]"},
                                        {kMatches, "[" WS "]?\\p{L}+"},
                                        {kMatches, "[" WS "]?\\p{P}+"},
                                        {kMatches, DEEPSEEK_CJK},
                                        {kMatches, "\\p{N}"}};
constexpr SplitStep kFalcon[] = {{kMatches, "[\\p{P}$+<=>^~|`]+"},
                                 {kMatches, kGpt2Words},
                                 {kMatches, "[0-9][0-9][0-9]"}};
constexpr SplitStep kStarcoder[] = {{kMatches, "\\p{N}"}, {kMatches, kGpt2Words}};
constexpr SplitStep kGpt2[] = {{kMatches, kGpt2Words}};
constexpr SplitStep kQwen2[] = {{kMatches, kQwen2Words}};
constexpr SplitStep kQwen35[] = {
    {kMatches, CONTRACTION "|" MARKED_WORD "|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES
                           "|" SPACES}};
constexpr SplitStep kBloom[] = {{kMatches, kBloomWords}};
constexpr SplitStep kViking[] = {{kMatches, kBloomWords}, {kMatches, "\\p{N}"}};
constexpr SplitStep kTekken[] = {
    {kMatches, CASED_WORD("") "|\\p{N}|" OTHERS "[\\r\\n/]*|" LINES "|" SPACES}};
constexpr SplitStep kChameleon[] = {{kMatches, "<sentinel:[0-9]+>"},
                                    {kMatches, "IMGIMG[A-I]{1,4}Z"},
                                    {kMatches, "[\\t\\n]|    |  "},
                                    {kMatches, "\\p{N}"},
                                    {kMatches, "[\\p{P}!-/:-@\\[-`{-~]"},
                                    {kMatches, kGpt2Words}};
constexpr SplitStep kGpt4o[] = {
    {kMatches, CASED_WORD("(?:" CONTRACTION ")?") "|\\p{N}{1,3}|" OTHERS "[\\r\\n/]*|" LINES
                                                  "|" SPACES}};
constexpr SplitStep kGraniteEmbedding[] = {
    {kMatches, "[^\\r\\n\\p{L}\\p{N}]?" MARKED_NOT_SMALL "*" MARKED_NOT_CAPITAL
               "+(?:" CONTRACTION ")?"
               "|[^\\r\\n\\p{L}\\p{N}]?" MARKED_NOT_SMALL "+" MARKED_NOT_CAPITAL
               "*(?:" CONTRACTION ")?|\\p{N}{1,3}|" OTHERS "[\\r\\n/]*|" LINES "|" SPACES}};
constexpr SplitStep kTinyAya[] = {
    {StepKind::kTriples, "\\p{N}+"},
    // The original asks for capitals before small letters; the reading has any letter there.
    {kMatches,
     MARKED_WORD "(?:" CONTRACTION ")?|\\p{N}{1,3}|" OTHERS "[\\r\\n/]*|" LINES "|" SPACES}};
constexpr SplitStep kKimiK2[] = {
    // Letters without Chinese ones; marks, which the original counts in, are not.
    {kMatches, "[" HAN "]+|[^\\r\\n\\p{L}\\p{N}]?[^\\P{L}" HAN "]+(?:" CONTRACTION ")?"
               "|\\p{N}{1,3}|" OTHERS "[\\r\\n]*|" LINES "|" SPACES}};
constexpr SplitStep kSuperBpe[] = {{kMatches, "\\p{N}+"}, {StepKind::kIsolatedTriples, "[0-9]+"}};
constexpr SplitStep kBailing[] = {
    {kMatches, CONTRACTION "|" WORD "|\\p{N}|" OTHERS "[\\r\\n]*|[" WS "]*[\\r\\n]|" SPACES}};
constexpr SplitStep kSeedCoder[] = {
    {kMatches, CONTRACTION "|" WORD "|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" LINES "|" SPACES}};
constexpr SplitStep kUfakzeka[] = {
    {kMatches, WORD "|\\p{N}|" OTHERS "[\\r\\n]*|" LINES "|" SPACES}};
constexpr SplitStep kAfmoe[] = {
    {StepKind::kTriples, "\\p{N}+"},
    {kMatches, "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{8c48}-\\x{faff}" KANA
               "\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{eff}\\x{1780}-\\x{17ff}"
               "\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{1100}-\\x{11ff}]+"},
    {kMatches, kDeepseek3Words}};
constexpr SplitStep kLaguna[] = {{kMatches, "[^\\n]+|\\n+"}, {kMatches, kQwen2Words}};
constexpr SplitStep kExaoneMoe[] = {
    // Words in a row that are joined by single spaces. Possessive, since nothing follows that could
    // make it give anything back.
    {kMatches, CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}(?:[\\p{L}\\p{M}]++| \\p{L})*+|\\p{N}|" OTHERS
                           "[\\r\\n/]?|[" WS "]*[\\r\\n]|" SPACES}};
constexpr SplitStep kMinicpm5[] = {
    {kMatches, "\\p{N}{1,3}"},
    {kMatches, CONTRACTION "|" WORD "|\\p{N}+|" OTHERS "[\\r\\n]*|" LINES "|" SPACES}};
constexpr SplitStep kLinesOnly[] = {{kMatches, "[^\\n]+|\\n+"}};

constexpr bool kIgnoreMerges = true;
constexpr bool kCharacters = true;
constexpr bool kMetaspace = true;

// Ascending by name.
constexpr PretokenizerKind kKinds[] = {
    {"a.x-4.0", kGpt2},
    {"afmoe", kAfmoe},
    {"bailingmoe", kBailing},
    {"bailingmoe2", kBailing},
    {"bloom", kBloom},
    {"chameleon", kChameleon},
    {"chatglm-bpe", kLlama3},
    {"codeshell", kStarcoder},
    {"cohere2moe", kTinyAya},
    {"command-r", kStarcoder},
    {"dbrx", kLlama3},
    {"deepseek-coder", kDeepseekCoder},
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-r1-qwen", kQwen2},
    {"deepseek-v3", kDeepseek3},
    {"default", kDefault},
    {"exaone", kStarcoder},
    {"exaone-moe", kExaoneMoe},
    {"exaone4", kGpt2},
    {"f2llmv2", kQwen2},
    {"falcon", kFalcon},
    {"falcon-h1", kLlama3, kIgnoreMerges},
    {"falcon3", kLlama3, kIgnoreMerges},
    {"gemma4", kLinesOnly, false, kCharacters},
    {"gigachat", kGpt2},
    {"glm4", kLlama3, kIgnoreMerges},
    {"glm5", kLlama3, kIgnoreMerges},
    {"gpt-2", kGpt2},
    {"gpt-4o", kGpt4o},
    {"gpt3-finnish", kBloom},
    {"granite-docling", kGpt2},
    {"granite-embed-multi-311m", kLinesOnly, false, kCharacters},
    {"granite-embed-multi-97m", kGraniteEmbedding, kIgnoreMerges},
    {"grok-2", kQwen2},
    {"hunyuan", kQwen2},
    {"hunyuan-dense", kDeepseek3},
    {"hy_v4", kDeepseek3},
    {"jais", kGpt2},
    {"jais-2", kJais2},
    {"jina-de", kGpt2},
    {"jina-es", kGpt2},
    {"jina-v1-en", kGpt2},
    {"jina-v2-code", kGpt2},
    {"jina-v2-de", kGpt2},
    {"jina-v2-es", kGpt2},
    {"jina-v5-nano", kLlama3, kIgnoreMerges},
    {"joyai-llm", kDeepseek3},
    {"kanana2", kGpt4o},
    {"kimi-k2", kKimiK2},
    {"kormo", kQwen2},
    {"laguna", kLaguna},
    {"lfm2", kLlama3, kIgnoreMerges},
    {"llada-moe", kBailing},
    {"llama-bpe", kLlama3, kIgnoreMerges},
    {"llama-v3", kLlama3, kIgnoreMerges},
    {"llama3", kLlama3, kIgnoreMerges},
    {"llama4", kGpt4o},
    {"megrez", kQwen2},
    {"mellum", kGpt2},
    {"mellum2", kStarcoder},
    {"midm-2.0", kLlama3, kIgnoreMerges},
    {"minerva-7b", kStarcoder},
    {"minicpm5", kMinicpm5, kIgnoreMerges},
    {"minimax-m2", kGpt4o},
    {"mmbert", kLinesOnly, false, kCharacters, kMetaspace},
    {"modern-bert", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"phi-2", kGpt2},
    {"pixtral", kLlama3, kIgnoreMerges},
    {"poro-chat", kBloom},
    {"qwen2", kQwen2},
    {"qwen35", kQwen35},
    {"refact", kStarcoder},
    {"roberta-bpe", kGpt2},
    {"sarvam-moe", kLinesOnly, false, kCharacters},
    {"seed-coder", kSeedCoder},
    {"smaug-bpe", kLlama3},
    {"smollm", kStarcoder},
    {"solar-open", kQwen2},
    {"spark2_5", kSpark25},
    {"stablelm2", kQwen2},
    {"starcoder", kStarcoder},
    {"superbpe", kSuperBpe},
    {"talkie", kGpt4o},
    {"tekken", kTekken, kIgnoreMerges},
    {"tiny_aya", kTinyAya},
    {"trillion", kGpt2},
    {"ufakzeka", kUfakzeka},
    {"viking", kViking},
    {"youtu", kYoutu, kIgnoreMerges},
};

static_assert(std::is_sorted(std::begin(kKinds), std::end(kKinds),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));

}  // namespace

const PretokenizerKind* find_pretokenizer(std::string_view name) noexcept {
  if (name.empty()) name = "default";
  const auto* at =
      std::lower_bound(std::begin(kKinds), std::end(kKinds), name,
                       [](const PretokenizerKind& a, std::string_view b) { return a.name < b; });
  return at != std::end(kKinds) && at->name == name ? at : nullptr;
}

std::span<const PretokenizerKind> all_pretokenizers() noexcept { return kKinds; }

}  // namespace inferd::text
