"""Writes ill_formed.txt: 200 texts, one a line in hexadecimal, none of them well-formed UTF-8: each kind of odd
byte between spaces and beside the mark of a space, text of many scripts with bytes lost or turned, and any bytes.
Usage: ill_formed.py > ill_formed.txt"""

import random

TEXT = "Hello, wörld! Привет мир — 日本語のテキスト 🙂👩‍👩‍👧 ąćę ▁under▁ naïve € 한국어 ไทย \u200b\u00a0 x=1;\n\tif (a<b) 12345"
# Continuations alone, characters cut short, overlong forms, surrogates, beyond U+10FFFF, what is never a byte of
# UTF-8, and three that are well-formed but rare.
ODD = [bytes.fromhex(text) for text in (
    "80 bf c3 e2 e296 efbf f0 f09f f09f98 c0 c1 c080 e08080 f0808080 eda080 edbfbf f4908080 f5 f7bfbfbf f8 "
    "fbbfbfbfbf fc fe ff fffe 00 efbbbf").split()]


def ill_formed(text):
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


def damaged(random_):
    """A stretch of the text with one or two bytes struck out or turned."""
    at = random_.randrange(len(TEXT) - 12)
    text = bytearray(TEXT[at:at + random_.randrange(4, 12)].encode())
    for _ in range(random_.randrange(1, 3)):
        place = random_.randrange(len(text))
        if random_.random() < 0.5:
            del text[place]
        else:
            text[place] ^= 1 << random_.randrange(8)
    return bytes(text)


def mixed(random_):
    parts = [lambda: random_.choice(ODD), lambda: random_.choice(TEXT).encode(), lambda: b" "]
    return b"".join(random_.choice(parts)() for _ in range(random_.randrange(2, 9)))


def main():
    random_ = random.Random(20261130)
    texts = [b"a" + odd + b" b" for odd in ODD] + [odd + "▁x ".encode() + odd for odd in ODD]
    makers = [damaged] * 60 + [mixed] * 50
    makers += [lambda r: bytes(r.randrange(256) for _ in range(r.randrange(1, 24)))] * 30
    makers += [lambda r: bytes(r.choice(b"\x80\x96\x81\xbf\xc3\xe2\xf0\x9f <|>s") for _ in range(r.randrange(3, 20)))] * 30
    kept = {text: None for text in texts if ill_formed(text)}
    while len(kept) < 200:
        text = random_.choice(makers)(random_)
        if ill_formed(text):
            kept[text] = None
    for text in kept:
        print(text.hex())


main()
