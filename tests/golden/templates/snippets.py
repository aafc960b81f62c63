"""Small pieces of the template language, each rendered by Jinja2 into snippets.json.

Each is a template text; data.json's variables are its input. Run again after an addition.
"""
import json
import pathlib

import reference

DATA = {
    "messages": [],
    "s": "Hello <|im_end|> World", "e": "", "u": "Größe ß ΑΣ 漢字 🙂", "n": 42, "neg": -7, "f": 2.5,
    "big": 1e22, "tiny": 1e-7, "t": True, "no": False, "nil": None, "ws": " \t a  b \n",
    "q": "it's \"q\" \\ \n\t\u0001\u00a0é",
    "l": [3, 1, 2], "w": ["b", "A", "c", "B"], "ll": [[1, 2], [3, 4]], "mix": [1, "a", None, True, 2.0],
    "d": {"b": 1, "a": {"x": [1, "y"]}, "items": "key", "C": None}, "lines": "one\n\ntwo\nthree\n",
    "people": [{"name": "Bob", "age": 3, "tag": {"k": "z"}}, {"name": "al", "age": 1, "tag": {"k": "y"}},
               {"name": "Cy", "age": 3}],
    "html": "<a href=\"x\">'&'</a>", "num": "12", "csv": "a,b,,c",
}

EXPRESSIONS = r"""
1 + 2 * 3 | 7 // 2 | -7 // 2 | 7 % 3 | -7 % 3 | 7 / 2 | 2 ** 10 | 2 ** -1 | 2 ** 3 ** 2 | -2 ** 2 | 7.5 // 2
7.5 % -2 | 1e16 | 1e15 | 1.0 | 0.1 + 0.2 | 1e-5 | 123456789.123 | big | tiny | f * 2 | n / 2 | true + 1 | 1_000
0x1F | 0b101 | 0o17 | 1 / 0 | 1 // 0 | 1 % 0 | "a" * 3 | 3 * "ab" | [1] * 2 | "a" + 1 | "a" ~ 1 ~ none ~ 2.0
[1] + [2] | (1,) + (2, 3) | (1,) | () | [] | {} | {"a": 1, "b": [1, 2]} | {"a": 1, "a": 2} | {1: 2, none: 3}
none | true | False | None | undefined_thing | undefined_thing.x | undefined_thing + 1 | undefined_thing ~ "x"
1 < 2 < 3 | 1 < 2 > 3 | 1 == 1.0 | 1 == true | "a" == "a" | [1] == [1.0] | {"a": 1} == {"a": 1} | "a" < "b"
1 < "a" | [1, 2] < [1, 3] | none < 1 | "a" in "abc" | 1 in "abc" | 2 in l | "b" in d | "x" not in d | 1 in none
not true | not "" | not [] | 1 and 2 | 0 or 3 | "" or none | 1 if false | 1 if true else 2 | (1 if no) is defined
s[0] | s[-1] | s[100] | s[1:4] | s[:-3] | s[::-1] | s[::2] | s[5:1] | s[-3:] | u[1:3] | u[::-1] | l[0] | l[-1] | l[9]
l[1:] | l[::-1] | l[::0] | ll[1][0] | d["b"] | d.b | d.a.x[1] | d["items"] | d.zz | d["zz"] | d.zz.y | l.x
l["a"] | n.x | none.x | nil[1:] | d[1:] | l[true] | l[1.0] | s["upper"]() | l.append(1) | d.pop("b") | d.update({})
l.append is defined | s.__class__ | s.__class__ is defined | d.__len__() | s._x | range(3) | range(1, 10, 3) | range(9, 0, -3)
range(3) is sequence | range(200000) | range(0) | range("a") | range(10)[2:4] | range(3)|list | dict(a=1, b=2) | dict([("x", 1)])
s.upper() | s.lower() | s.title() | "hELLO wORLD".capitalize() | "aBc".swapcase() | u.upper() | u.lower() | u.title()
ws.strip() | ws.lstrip() | ws.rstrip() | "xxaxx".strip("x") | "abcba".lstrip("ab") | ws.split() | csv.split(",") | "a b c d".split(" ", 2)
"a b c d".split(none, 1) | "a b c d".rsplit(" ", 1) | "a b c".rsplit(none, 1) | "a".split("") | lines.splitlines() | lines.splitlines(true)
s.startswith("Hell") | s.startswith(("x", "H")) | s.endswith("ld") | s.startswith("ello", 1) | s.find("o") | s.find("zz") | s.rfind("o") | s.index("zz")
s.count("l") | u.find("漢") | s.replace("l", "L") | s.replace("l", "L", 1) | "abc".replace("", "-") | ",".join(["a", "b"]) | ",".join([1])
"abc".center(8) | "abc".center(9, "*") | "abc".ljust(5) ~ "|" | "abc".rjust(5, ".") | "-5".zfill(4) | "abc".zfill(2) | "a\tb".expandtabs(4)
"a-b-c".partition("-") | "a-b-c".rpartition("-") | "abc".partition("x") | "abc".removeprefix("a") | "abc".removesuffix("c")
"12".isdigit() | "a1".isalnum() | "ab".isalpha() | "".isalpha() | " ".isspace() | "AB".isupper() | "ab1".islower() | "Ab Cd".istitle() | "é".isascii()
d.keys() | d.values() | d.items() | d.get("b") | d.get("zz") | d.get("zz", 5) | d.keys()|list | d.copy() | l.index(1) | l.index(99) | l.count(1)
"{} {}".format(1, "a") | "{0} {0} {1}".format(1, 2) | "{a} {b!r}".format(a=1, b="x") | "{:>5}|{:<5}|{:^5}".format(1, 2, 3) | "{:05d}".format(42)
"{:.2f}".format(3.14159) | "{:,}".format(1234567) | "{:x} {:#x} {:X}".format(255, 255, 255) | "{:e}".format(12345.678) | "{:%}".format(0.25)
"{:*^9}".format("ab") | "{:.2}".format("abcdef") | "{{}}".format() | "{}".format() | "{a[b]} {a[c].x}".format(a={"b": 1, "c": {"x": 2}}) | "{:g}".format(0.0001)
"{:+d} {: d}".format(5, 5) | "{:10.3f}|".format(3.14159) | "{!s:>4}".format(1) | "{:>{}}".format(1, 5) | "{:d}".format("x") | "{:s}".format(1) | "{:b}".format(5)
"%s and %d" % ("a", 3) | "%5.2f|" % 3.14159 | "%-5s|%5s" % ("a", "b") | "%x %o %X" % (255, 8, 255) | "%(a)s" % {"a": 1} | "%%" % () | "%s" % "a" | "%r" % "a"
"%s" % (1, 2) | "%s %s" % (1,) | "%d" % "a" | "%05d" % 42 | "%+d" % 42 | "%e" % 1234.5 | "%g" % 0.00001 | "%c" % 65 | "%.3s" % "abcdef" | "%s %s"|format(1, 2)
s|upper | s|lower | s|title | s|capitalize | "hello-world (foo) bar"|title | ws|trim | "xxaxx"|trim("x") | s|length | u|length | l|length | d|length | n|length | nil|length
undefined_thing|length | s|first | s|last | l|first | l|last | []|first | []|last | d|first | l|sort | l|sort(reverse=true) | w|sort | w|sort(case_sensitive=true)
mix|sort | people|sort(attribute="age,name")|map(attribute="name")|list | people|map(attribute="name")|list | people|map(attribute="tag.k", default="-")|list | people|map(attribute="zz")|list
w|map("upper")|list | w|map("upper") is defined | w|map("zzz") is defined | w|map("zzz")|list | w|select|list | [0, 1, 2, none]|select|list | [1, 2, 3]|select("odd")|list | [1, 2, 3]|reject("odd")|list
people|selectattr("age", "equalto", 3)|map(attribute="name")|join(", ") | people|rejectattr("tag")|list | people|selectattr("tag")|list|length | people|selectattr("age", "gt", 2)|list|length
l|join | l|join("-") | people|join(",", attribute="name") | l|reverse|list | s|reverse | w|unique|list | w|unique(true)|list | l|min | l|max | w|min | []|max | l|sum | people|sum(attribute="age") | ["a"]|sum
[1, 2, 3, 4, 5]|batch(2)|list | [1, 2, 3, 4, 5]|batch(2, 0)|list | [1, 2, 3, 4, 5]|slice(3)|list | [1, 2, 3, 4, 5]|slice(3, "x")|list | d|dictsort | {"b": 1, "A": 2}|dictsort | {"b": 1, "A": 2}|dictsort(true) | {"b": 1, "a": 2}|dictsort(by="value")
people|groupby("age") | (people|groupby("age"))[0].grouper | d|items|list | undefined_thing|items|list | n|items|list | d|list | s|list | n|list
undefined_thing|default("x") | e|default("x") | e|default("x", true) | nil|default("x") | nil|d("x", true) | n|string ~ "!" | l|string | d|string
"42"|int | "4.7"|int | "x"|int | "x"|int(9) | "ff"|int(0, 16) | "0x1f"|int(0, 16) | 3.9|int | nil|int | " 5 "|int | "1_0"|int | "1.5"|float | "x"|float | "inf"|float | "1e3"|float | undefined_thing|int
2.5|round | 3.5|round | 2.675|round(2) | 42|round | 42.55|round(1, "floor") | 42.55|round(1, "ceil") | -5|abs | 5.5|abs | "x"|abs | 1234|round(-2) | 15|round(-1)
html|escape | html|e ~ "<" | html|safe | (html|safe) + "<i>" | (html|e)|e | html|forceescape | html|safe is escaped | "<b>"|safe|upper | ("<b>"|safe)|replace("<", "[") | ("%s"|safe) % "<" | "<"|safe|string
lines|indent | lines|indent(2, true) | lines|indent(2, blank=true) | lines|indent("> ") | "a b c d e f"|truncate(5) | "a b c d e f g h"|truncate(8, true) | "abcdefghijklmnop"|truncate(10, false, "!", 0) | "one two_x 3"|wordcount
d|tojson | l|tojson | s|tojson | q|tojson | u|tojson | u|tojson(ensure_ascii=true) | d|tojson(indent=2) | d|tojson(indent=2, sort_keys=true) | []|tojson(indent=2) | d|tojson(separators=(",", ":")) | (1, 2)|tojson
f|tojson | big|tojson | nil|tojson | t|tojson | undefined_thing|tojson | range(3)|tojson | {1: 2, none: 3, true: 4}|tojson | d|tojson(sort_keys=true) | {"a": []}|tojson(indent=1) | "\u2028</"|tojson | d|tojson(indent="\t")
q | [q] | [s, 1.5, none, true, [u]] | {"k": q} | ("a", ) | ["'"] | ["\""] | ["'\""] | ["\x7f\u200b\ue000"] | [undefined_thing] | [html|safe]
n is number | f is float | n is integer | t is integer | t is boolean | t is true | no is false | nil is none | s is string | d is mapping | d is sequence | l is sequence | s is sequence | l is iterable | n is iterable
undefined_thing is defined | undefined_thing is undefined | undefined_thing is sequence | undefined_thing is iterable | undefined_thing is mapping | s is not defined | 3 is odd | 3 is even | 9 is divisibleby 3 | 9 is divisibleby(4) | 3 is in l | 3 is in([1])
1 is eq 1 | 1 is ne 2 | 1 is lt 2 | 2 is ge 2 | 1 is sameas 1 | nil is sameas none | "a" is lower | "A" is upper | "upper" is filter | "zz" is filter | "odd" is test | s.upper is callable | range is callable | n is callable | not n is none | n is not none
x is defined and x or "z" | s is string and n is number | "a" if s is defined else "b" | nil is none or false | 1 is zzz | (1 if false else 1) is zzz
namespace(a=1).a | namespace(a=1)["a"] | namespace().b is defined | joiner("|") is callable | strftime_now("%Y-%m-%d %H:%M:%S") | strftime_now("%d %b %Y, %A %j %p %%") | strftime_now("%B %-d %f") | raise_exception("no") | cycler("a", "b").current
"\n\t\\\"\'" | '\x41\u0042\101' | "\q" | "a" "b" | "a\
b" | "\é" | 'it''s' | "{{ }}" | "%}" | {"a": {"b": {}}}.a.b | [[1]][0][0] | (1, 2)[1] | "abc"|upper|lower | -1|abs | (-1)|abs | 5 is odd and 4 is even
l|map("string")|join("+") | s.split(" ")|map("length")|list | s.split()[0].lower().replace("h", "j") | d|attr("b") | s|attr("upper") is callable | ("a,b"|string).split(",")[-1] | l|length > 2 | l|length - 1 | n|string|length
"a" if undefined_thing else "b" | undefined_thing == undefined_other | undefined_thing == none | undefined_thing in l | "x" in undefined_thing | undefined_thing|join | undefined_thing|upper | undefined_thing|list | undefined_thing() | n() | "a".zz() | dict(a=1).a
[1, 2, 3][1:][0] | "%s" % none | "%s" % [1, 2] | "%s %s" % ("é", u) | 9223372036854775807 | -9223372036854775807 | 1.5e300 * 1e10 | "nan"|float | 1e400 | 5 // 0.3 | -0.0 | 3.0 | 100000000000000000.0 | 12345678901234567.0 | 0.00001234
lines.split("\n") | "a" < "B" | "é" > "z" | [3, 1]|sort|first | "abc"[1] ~ "abc"[-1] | ["a", "b"]|join(", ") ~ "." | "x" ~ {"a": [1]} | loop | loop is defined | true and "yes" | 1 in [true] | "1" in [1]
""".strip("\n").split("\n")

BLOCKS = [
    "a\n{% if true %}\nb\n{% endif %}\nc\n", "  {% if true %}x{% endif %}  y", "a {%- if true %} b {%- endif %} c", "a  {{- 1 -}}  b",
    "  {%+ if true %}x{% endif %}", "{% if true +%}\nx{% endif %}", "{# c #}\nx", "a {#- c -#} b", "  {# c #}  \nx", "x{#+ c +#}\ny", "a\r\nb\rc\n",
    "{% raw %}{{ x }}{% endraw %}\ny", "a {%- raw -%}  {% x %} {%- endraw -%}  b", "  {% raw %} x {% endraw %}", "\n\n", "x\n\n", "", "{{ '' }}\n", "{{ 1 }}\n{{ 2 }}\n",
    "{% for i in l %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %}", "{% for i in [] %}x{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}|{% endfor %}",
    "{% for i in l if i > 1 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}", "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}{% endfor %}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }} {% endfor %}", "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{{ loop.depth }}:{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}",
    "{% for a in [1, 2] %}{% for b in [3, 4] %}{{ loop.index }}{{ a }}{{ b }} {% endfor %}{{ loop.index }}{% endfor %}", "{% for i in nil %}{% endfor %}", "{% for i in undefined_thing %}x{% else %}e{% endfor %}",
    "{% for a, b in [(1, 2), (3,)] %}{{ a }}{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}", "{% for i in l|map('string') %}{{ i }}{{ loop.last }}{% endfor %}", "{% for i in l %}{% set x = i %}{% endfor %}{{ x }}",
    "{% set x = 0 %}{% for i in l %}{{ x }}{% set x = i %}{% endfor %}{{ x }}", "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set d.x = 1 %}", "{% set zz.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1, 2, 3] %}", "{% set x %}a{{ 1 }}b{% endset %}{{ x }}{{ x|length }}", "{% set x | upper | trim %} abc {% endset %}[{{ x }}]", "{% set x = 1, 2 %}{{ x }}",
    "{% if false %}{% set x = 1 %}{% endif %}{{ x is defined }}", "{% if true %}{% set x = 1 %}{% endif %}{{ x }}", "{% if n == 1 %}a{% elif n == 42 %}b{% else %}c{% endif %}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c=5) }}|{{ m(b=9, a=8) }}", "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}{{ m(1) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(z=2) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}x{% endcall %}", "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a + b }}{% endcall %}", "{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set y = 1 %}{% endmacro %}{{ m() }}{{ y is defined }}", "{% macro m() %}x{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m }}", "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aaa{% endfilter %}", "{% filter zzz %}{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% generation %}x{{ n }}{% set g = 1 %}{% endgeneration %}{{ g is defined }}", "{% print 1 %}", "{% do 1 %}", "{% break %}", "{% for i in l %}{% set loop = 1 %}{% endfor %}",
    "{{ 'a'|zzz }}", "{% if false %}{{ 'a'|zzz }}{% endif %}ok", "{% if true %}{{ 'a'|zzz }}{% endif %}", "{{ 'a'|zzz if false else 'b' }}", "{% if false %}{% for i in l %}{{ i|zzz }}{% endfor %}{% endif %}", "{{ 1 is zzz }}", "{{", "{% if %}", "{% endif %}", "{% for %}", "{{ 1 }", "{{ (1 }}", "{{ 1) }}",
    "{# x", "{{ 'a }}", "{% raw %}x", "{% if true %}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ 1 2 }}", "{{ }}", "{{ a b }}", "{{ $ }}", "{{ f(a=1, 2) }}", "{{ x is y is z }}", "{{ not not true }}", "{{ 'a' is not string }}", "{{ -n }}{{ +n }}{{ - - n }}", "{{ l.0 }}{{ ll.1.0 }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{% set g = l|select %}{{ g|list }}{{ g|list }}", "{% set g = l|map('string') %}{{ g|first }}{{ g|list }}", "{% if l|select('gt', 9) %}truthy{% endif %}",
    "{{ dict(d, b=5) }}", "{{ dict(**{'a': 1}) }}{{ range(*[1, 3])|list }}", "{{ (l|sort)[0] }}{{ l }}", "{{ s if t else '' }}{{ '' if t }}", "{%- set x = 1 -%}\n\n x", "a\n  {%- set x = 1 %}\n  b", "  {% set x = 1 %}\n  {% set y = 2 %}\n{{ x }}{{ y }}", "\t {% if t %}\n\t x\n\t {% endif %}\n", "a {% if t %}\n b\n {% endif %} c",
    "{{ bos_token }}{{ eos_token }}{{ tools }}{{ documents }}{{ add_generation_prompt }}", "{% for m in messages %}x{% else %}empty{% endfor %}", "{{ ns }}", "{% set ns = namespace(a=[]) %}{% set ns.a = ns.a + [1] %}{{ ns.a }}", "{% for i in l recursive %}{{ i }}{% endfor %}", "{% for i in l %}{{ loop(l) }}{% endfor %}",
    "{% for i in l %}{% if loop.first %}{% set x %}{{ i }}{% endset %}{{ x }}{% endif %}{{ x is defined }}{% endfor %}", "{% set x = 5 %}{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1) }}{{ x }}", "{{ '{{' }}{{ '}}' }}{{ {'a': '}}'} }}", "{% if 'a' in 'abc' and not 'z' in 'abc' %}y{% endif %}", "{{ 'x' if 'a' not in 'abc' else 'y' }}",
    "{% include 'x' %}", "{{ super() }}", "{{ lipsum is defined }}", "{% for i in range(3) -%}\n  {{ i }}\n{%- endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for a in ll %}{% for b in a %}{{ b }}{% if loop.last and not loop.first %};{% endif %}{% endfor %}{% endfor %}", "{{ loop }}", "{% set l2 = l[:] %}{{ l2 == l }}", "{{ [1,2,3,] }}{{ (1,2,) }}{{ {'a':1,} }}",
]


def main():
    env = reference.environment()
    sources = ["{{ " + e.strip(" ") + " }}" for line in EXPRESSIONS for e in split(line)] + BLOCKS
    results = []
    for source in sources:
        try:
            text = reference.render(env.from_string(source), DATA)
        except Exception:
            text = None
        results.append([source, text])
    path = pathlib.Path(__file__).with_name("snippets.json")
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in results)
    data = json.dumps(DATA, ensure_ascii=False)
    path.write_text(f'{{"data": {data},\n"snippets": [\n{rows}\n]}}\n', encoding="utf-8")
    print(len(results), "snippets,", sum(text is None for _, text in results), "raise")


def split(line):
    return line.split(" | ")


if __name__ == "__main__":
    main()
