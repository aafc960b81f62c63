// Reads the vocabulary, the tokenizer's settings and the chat templates from a GGUF file's
// metadata. Owner: formats. Pure function of the file, any thread. Must not know how text is cut
// into tokens.
#pragma once

#include "base/result.h"
#include "base/vocabulary.h"
#include "formats/gguf.h"

namespace inferd::formats {

// Works on whole models and on vocabulary-only files. What a file leaves open is filled in as
// llama.cpp does: the ids and flags by tokenizer model, end-of-turn and fill-in-the-middle tokens
// and the tokens that end a generation by their text (the file's types of those become kControl).
//
// Errors: kNotFound if the file has no tokenizer; kDataCorrupt, naming the key, for lists whose
// lengths differ, unknown token types, merges that are not two pieces, and ids of bos, eos, eot,
// eom or unknown beyond the vocabulary. Other ids beyond it (a padding token that was never added,
// -1 written as 4294967295) are common in the wild and mean "none".
Result<Vocabulary> read_vocabulary(const GgufFile& file);

}  // namespace inferd::formats
