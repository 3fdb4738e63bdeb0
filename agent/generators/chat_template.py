"""Chat templates of model files: Jinja, rendered as `transformers` does, in a sandbox of its own, because a file may hold any template.

No date is given to a template: its prompts would be others every day.
Source: transformers, `apply_chat_template` (utils/chat_template_utils.py).
"""

import json
from collections.abc import Sequence
from typing import NoReturn

from edgemeter.agent.base.errors import UnavailableError, one_line
from edgemeter.agent.base.plugins import import_extra
from edgemeter.agent.generators import ChatMessage


def render(template: str, messages: Sequence[ChatMessage], *, bos: str, eos: str) -> str:
    """Return the text of messages up to where the assistant's answer begins; `bos` and `eos` are the texts of these tokens.

    Raises:
        UnavailableError: the package Jinja2 is missing, or the template does not take these messages.
    """
    jinja2, sandbox = (import_extra(module, "llama", "chat templates need Jinja2") for module in ("jinja2", "jinja2.sandbox"))
    environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = _refuse
    chat = [{"role": message.role, "content": message.text} for message in messages]
    try:
        return str(environment.from_string(template).render(messages=chat, add_generation_prompt=True, bos_token=bos, eos_token=eos))
    except (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UnavailableError(f"the model's chat template cannot be applied ({one_line(error)}): give a text") from error


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)
