"""Chat templates with the structure of the three models' own, written for these tests: marks, blocks and switches.

Each text is what one user turn looks like, with ``{turn}`` in its place.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LLAMA_LIKE", "QWEN_LIKE", "SMOLLM3_LIKE", "ChatTemplate"]


class ChatTemplate(NamedTuple):
    """A template and what it has to give.

    Attributes:
        source: The template.
        marks: Its special tokens, besides those of the tokenizer.
        bos: The beginning-of-sequence token; ``None``: the tokenizer has none.
        expected: The text of one user turn with the answer's header, with ``{turn}``.
        trims: Whether white space around the turn is dropped.
    """

    source: str
    marks: tuple[str, ...]
    bos: str | None
    expected: str
    trims: bool


# The first token inside the template, a system block that is always there, the date handed in or asked for.
LLAMA_LIKE = ChatTemplate(
    source=(
        "{{- bos_token }}"
        "{%- if date_string is not defined %}"
        "{%- if strftime_now is defined %}{%- set date_string = strftime_now('%d %b %Y') %}"
        "{%- else %}{%- set date_string = '26 Jul 2024' %}{%- endif %}{%- endif %}"
        "{%- if messages[0].role == 'system' %}"
        "{%- set system = messages[0].content | trim %}{%- set turns = messages[1:] %}"
        "{%- else %}{%- set system = '' %}{%- set turns = messages %}{%- endif %}"
        "{{- '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\n' }}"
        "{{- 'Today Date: ' ~ date_string ~ '\\n\\n' ~ system ~ '<|eot_id|>' }}"
        "{%- for turn in turns %}"
        "{{- '<|start_header_id|>' ~ turn.role ~ '<|end_header_id|>\\n\\n' ~ turn.content | trim ~ '<|eot_id|>' }}"
        "{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
    ),
    marks=("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    bos="<|begin_of_text|>",
    expected=(
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
        "Today Date: 24 Sep 2026\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{turn}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    trims=True,
)

# No first token, a default system block where none is given, the turn as it stands.
QWEN_LIKE = ChatTemplate(
    source=(
        "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' ~ messages[0].content ~ '<|im_end|>\\n' }}"
        "{%- else %}{{- '<|im_start|>system\\nYou are a helpful assistant, named by these tests.<|im_end|>\\n' }}"
        "{%- endif %}"
        "{%- for turn in messages if turn.role != 'system' %}"
        "{{- '<|im_start|>' ~ turn.role ~ '\\n' ~ turn.content ~ '<|im_end|>\\n' }}"
        "{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
    ),
    marks=("<|im_start|>", "<|im_end|>"),
    bos=None,
    expected=(
        "<|im_start|>system\nYou are a helpful assistant, named by these tests.<|im_end|>\n"
        "<|im_start|>user\n{turn}<|im_end|>\n<|im_start|>assistant\n"
    ),
    trims=False,
)

# A block of facts with today's date and the mode, which is to think unless told otherwise; the block stays open.
SMOLLM3_LIKE = ChatTemplate(
    source=(
        "{%- set thinks = enable_thinking if enable_thinking is defined else true %}"
        "{%- set mode = '/think' if thinks else '/no_think' %}"
        "{%- set today = strftime_now('%d %B %Y') %}"
        "{{- '<|im_start|>system\\n## Metadata\\n\\nKnowledge Cutoff Date: June 2025\\n' }}"
        "{{- 'Today Date: ' ~ today ~ '\\nReasoning Mode: ' ~ mode ~ '\\n\\n## Custom Instructions\\n\\n' }}"
        "{%- if thinks %}{{- 'Think first, between <think> and </think>, then answer.\\n\\n' }}"
        "{%- else %}{{- 'You answer for these tests.\\n\\n' }}{%- endif %}"
        "{%- for turn in messages if turn.role != 'system' %}"
        "{{- '<|im_start|>' ~ turn.role ~ '\\n' ~ turn.content ~ '<|im_end|>\\n' }}"
        "{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
        "{%- if not thinks %}{{- '<think>\\n\\n</think>\\n' }}{%- endif %}{%- endif %}"
    ),
    marks=("<|im_start|>", "<|im_end|>"),
    bos=None,
    expected=(
        "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: 24 September 2026\n"
        "Reasoning Mode: /no_think\n\n## Custom Instructions\n\nYou answer for these tests.\n\n"
        "<|im_start|>user\n{turn}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n"
    ),
    trims=False,
)
