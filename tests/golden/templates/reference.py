"""Jinja2 set up as Hugging Face transformers sets it up for chat templates, with a fixed clock."""
import datetime
import json

import jinja2
import jinja2.ext
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 3, 7, 9, 5, 2)


class Generation(Extension):
    """{% generation %}: a body with a scope of its own."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_support")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return env


TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(template, chat):
    """The text, or None where Jinja2 raises."""
    variables = {"tools": None, "documents": None, "add_generation_prompt": True}
    variables.update(TOKENS)
    variables.update(chat)
    try:
        return template.render(**variables)
    except Exception:  # whatever a template can raise counts as "raises"
        return None
