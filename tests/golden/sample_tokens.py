"""Makes sample_tokens.json: how llama.cpp tokenizes odd texts with the sample model's vocabulary.

usage: sample_tokens.py LLAMA_TOKENIZE MODEL.gguf > sample_tokens.json

Texts are kept in hexadecimal, because some are not UTF-8.
"""

import json
import subprocess
import sys
import tempfile

TEXTS = [
    "Hello, world!", " leading", "trailing ", "  two  spaces  ", "\n\n\n", "\t\ttabs\t", "a\r\nb\rc", " \n \n ",
    "I'm, you're, we've, they'll, he'd, it's", "DON'T SHOUT'S", "CamelCase snake_case kebab-case",
    "1234567890", "3.14159 1e-9 0xFF 1,000,000.00", "12 345 6789", "٣٤٥ १२३ ৪৫৬", "½ ² ③ Ⅳ",
    "for (int i = 0; i < 10; ++i) { x[i] *= 2; } // comment", "def f(x):\n    return x ** 2\n",
    "<html><body class=\"x\">&nbsp;</body></html>", "SELECT * FROM t WHERE a != 'b';", "{\"k\": [1, 2, null]}",
    "Grüße aus Köln", "naïve café résumé", "Łódź Žižka Ångström", "Привет, мир!", "Γειά σου Κόσμε",
    "你好，世界！", "こんにちは世界", "안녕하세요 세계", "สวัสดีชาวโลก", "नमस्ते दुनिया", "שלום עולם", "مرحبا بالعالم",
    "ግዕዝ ᏣᎳᎩ ქართული հայերեն", "😀 😃😄 👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽", "e\u0301 vs é", "a\u200bb\u200cc\u200dd\ufeffe",
    "\u00a0no-break\u2003em\u3000ideographic", "\u0000\u0001\u001f\u007f\u0080\u009f", "ﬁ ﬂ ﬀ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𓀀",
    "…—–‘’“”«»„", "$€£¥₿ %‰ §¶†‡", "a" * 300, " " * 100, "ab" * 150, "!?" * 50, "\n" * 40,
    "supercalifragilisticexpialidocious antidisestablishmentarianism", "http://example.org/a?b=c&d=%20#e",
    "mixed 日本語 and English, numbers 42 и русский", "<|im_start|>user\nhi<|im_end|>", "<|endoftext|>",
]
BYTES = [b"\xff", b"a\xffb", b"\xc3", b"\xe2\x82 x", b"\xf0\x9f\x98", b"\x80\x81\x82", b"ok \xc3\xa9 \xe9 latin-1",
         b"\xed\xa0\x80 surrogate", b"\xc0\xaf overlong", bytes(range(128, 256)), bytes(range(1, 128))]


def main():
    rows = []
    for text in [text.encode() for text in TEXTS] + BYTES:
        with tempfile.NamedTemporaryFile() as file:
            file.write(text)
            file.flush()
            done = subprocess.run([sys.argv[1], "-m", sys.argv[2], "-f", file.name, "--ids", "--no-bos",
                                   "--no-parse-special", "--no-escape", "--log-disable"], capture_output=True, check=True)
        rows.append(json.dumps({"hex": text.hex(), "ids": json.loads(done.stdout)}))
    print("[\n" + ",\n".join(rows) + "\n]")


main()
