"""Chat templates that behave as those of published models do towards messages and thoughts, in our own words.

Tools, images and `reasoning_content` are left out. What is said here of each was read off the published ones:

- Qwen2.5: a system message of its own where none is given; knows nothing of thoughts.
- Qwen3: no system message of its own. `enable_thinking=false` ends the prompt with an empty thought; else
  the model opens its thought. Answers before the last question lose their thoughts.
- Qwen3 Thinking (2507): as Qwen3, but every prompt opens a thought, and there is no switch.
- Qwen3.5: every prompt opens a thought, or with `enable_thinking=false` ends with an empty one; messages are
  trimmed; a conversation without a question is refused. The small ones deny the thought unless asked for it.
- GLM-4.5: the switch adds an empty thought; earlier answers get an empty one instead of their own.
"""

_LAST = (
    "{% set last = namespace(user=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}{% endfor %}"
)
_PARTS = (
    "{% set pieces = m.content.split('</think>') %}"
    "{% set thought = pieces[0].split('<think>')[-1].strip('\n') if pieces|length > 1 else '' %}"
    "{% set said = pieces[-1].lstrip('\n') %}"
)
_EMPTY = "<think>\n\n</think>\n\n"
_OFF = "enable_thinking is defined and not enable_thinking"
_ON = "enable_thinking is defined and enable_thinking"

QWEN25 = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\n"
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _qwen3(prompt: str, *, content: str = "m.content", always: bool = False) -> str:
    block = "loop.index0 > last.user" + ("" if always else " and (loop.last or thought)")
    return (
        _LAST
        + "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
        + _PARTS
        + "{% if "
        f"{block} %}}<think>\n{{{{ thought }}}}\n</think>\n\n{{% endif %}}{{{{ said }}}}"
        f"{{% else %}}{{{{ {content} }}}}{{% endif %}}<|im_end|>\n{{% endfor %}}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n" + prompt + "{% endif %}"
    )


_REFUSE = "{% if last.user < 0 %}{{ raise_exception('No user query found in messages.') }}{% endif %}"

QWEN3 = _qwen3(f"{{% if {_OFF} %}}{_EMPTY}{{% endif %}}")
QWEN3_THINKING = _qwen3("<think>\n")
QWEN35 = (
    _LAST
    + _REFUSE
    + _qwen3(
        f"{{% if {_OFF} %}}{_EMPTY}{{% else %}}<think>\n{{% endif %}}", content="m.content|trim", always=True
    )
)
QWEN35_SMALL = (
    _LAST
    + _REFUSE
    + _qwen3(
        f"{{% if {_ON} %}}<think>\n{{% else %}}{_EMPTY}{{% endif %}}", content="m.content|trim", always=True
    )
)
GLM45 = (
    "{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}"
    + _PARTS
    + "<think></think>\n{{ said }}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if " + _OFF + " %}\n<think></think>{% endif %}{% endif %}"
)
