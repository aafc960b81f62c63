// What Python's str knows about characters: counting, white space, case, classes.
// Owner: text/jinja. Pure functions over valid UTF-8; any thread. Must not know values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace inferd::jinja {

// Whether `text` is UTF-8 without overlong forms and surrogates.
bool is_utf8(std::string_view text);

// The character that begins at *position, which moves behind it.
char32_t next_character(std::string_view text, size_t* position);
void append_utf8(std::string* out, char32_t character);

// How many characters, and the byte where the character number `index` begins (the size of the text
// for an index at or past its end).
size_t count_characters(std::string_view text);
size_t byte_of_character(std::string_view text, size_t index);
// The byte where the character before `position` begins; position > 0.
size_t previous_character(std::string_view text, size_t position);

// str.isspace, the line ends of str.splitlines, str.isprintable.
bool is_space(char32_t character);
bool is_line_end(char32_t character);
bool is_printable(char32_t character);

bool is_upper(char32_t character);
bool is_lower(char32_t character);
bool is_title(char32_t character);    // Lt: one character that is a capital and a small letter
bool is_letter(char32_t character);   // str.isalpha
bool is_decimal(char32_t character);  // str.isdecimal
bool is_numeric(
    char32_t character);  // str.isnumeric, up to ideographs that are numbers by use only

// Appends the upper, lower or title case, which may be several characters.
void append_upper(std::string* out, char32_t character);
void append_lower(std::string* out, char32_t character);
void append_title(std::string* out, char32_t character);

}  // namespace inferd::jinja
