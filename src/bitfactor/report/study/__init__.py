"""The page of a study: what `bitfactor ablate` left, compared with what the paper says."""

from bitfactor.report.study.directory import is_study, read_study

__all__ = ["is_study", "read_study"]
