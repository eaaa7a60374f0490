"""From the theory to a real transformer: two tasks in conflict, trained together and searched."""

from cel_lens.conflict.population import Population, population
from cel_lens.conflict.results import ConflictRow, ConflictStudy, Removal, Share
from cel_lens.conflict.setting import ConflictSetting
from cel_lens.conflict.study import fit_of, search_conflict, study_conflict
from cel_lens.conflict.tasks import ConflictTask
from cel_lens.conflict.training import train_conflict_model

__all__ = [
    "ConflictRow",
    "ConflictSetting",
    "ConflictStudy",
    "ConflictTask",
    "Population",
    "Removal",
    "Share",
    "fit_of",
    "population",
    "search_conflict",
    "study_conflict",
    "train_conflict_model",
]
