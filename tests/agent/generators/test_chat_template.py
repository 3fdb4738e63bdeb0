"""Facts about chat templates: a model file's own words are rendered, and a template reaches nothing else."""

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.generators import ChatMessage
from edgemeter.agent.generators.chat_template import render
from tests.fixtures.rows import table_row

HELLO = [ChatMessage("user", "Hello")]
TEMPLATE = """{% for message in messages %}
    {% if loop.first and message.role != 'system' %}{{ bos_token + '<s>Be kind.' + eos_token }}{% endif %}
    {{ '<' + message.role + '>' + message.content | trim + eos_token }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"""


def test_a_template_adds_what_the_model_was_trained_with():
    """The system's message that it has by itself, its tokens, and where the answer begins; lines of statements leave no space."""
    rendered = render(TEMPLATE, HELLO, bos="[B]", eos="[E]")
    assert rendered.split() == ["[B]<s>Be", "kind.[E]", "<user>Hello[E]<assistant>"]
    chat = [ChatMessage("system", "Be brief."), *HELLO]
    assert render(TEMPLATE, chat, bos="[B]", eos="[E]").split() == ["<system>Be", "brief.[E]", "<user>Hello[E]<assistant>"]


def test_a_template_that_cannot_be_applied_is_one_line():
    """What it refuses itself, what is no template, and what would reach out of it or change its messages."""
    for template, message in [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% if %}", "cannot be applied"),
        ("{{ messages[3].content }}", "cannot be applied"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "is unsafe"),
        ("{{ messages.append(1) }}", "is unsafe"),
    ]:
        with table_row(template), pytest.raises(UnavailableError, match=message):
            render(template, HELLO, bos="", eos="")


def test_a_template_is_given_no_date():
    """One that would write today's takes the date that it was made with."""
    assert render("{{ 'now' if strftime_now is defined else '26 Jul 2024' }}", HELLO, bos="", eos="") == "26 Jul 2024"
