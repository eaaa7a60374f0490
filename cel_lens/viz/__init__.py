"""Pictures of a result and the HTML report.

Every plot is a pure function that returns exactly what is drawn, and a function that draws it. Plotly is
imported when something is drawn.
"""

from cel_lens.viz.answers import AnswerFlags, FlagCount, answer_flags
from cel_lens.viz.gain_map import GainMap, draw_gain_map, gain_map
from cel_lens.viz.panel import PanelGain, PanelGains, draw_panel_gains, panel_gains
from cel_lens.viz.report import ReportContent, report_content, write_report
from cel_lens.viz.subsets import BestSubsets, SubsetRow, best_subsets, draw_subsets

__all__ = [
    "AnswerFlags",
    "BestSubsets",
    "FlagCount",
    "GainMap",
    "PanelGain",
    "PanelGains",
    "ReportContent",
    "SubsetRow",
    "answer_flags",
    "best_subsets",
    "draw_gain_map",
    "draw_panel_gains",
    "draw_subsets",
    "gain_map",
    "panel_gains",
    "report_content",
    "write_report",
]
